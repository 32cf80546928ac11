use std::sync::LazyLock;

/// How many hash slots a Cluster has.
const SLOTS: u16 = 16_384;

/// The hash slot of a key, as a Cluster counts.
pub(crate) fn slot(key: &str) -> u16 {
    crc16(hash_tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// The part of a key that alone decides its slot, if there is one: what stands between the first `{`
/// and the first `}` after it, unless that is nothing.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Four letters that hash to `slot`.
///
/// Over the letters `@` to `O`, which differ in four bits, the checksum is linear in sixteen bits that
/// can be chosen: any slot is a sum of a few columns.
pub(crate) fn tag_of_slot(slot: u16) -> String {
    let basis = &*BASIS;
    let mut wanted = slot ^ basis.origin;
    let mut bits = 0;
    for (high, column, chosen) in &basis.columns {
        if wanted & high != 0 {
            wanted ^= column;
            bits ^= chosen;
        }
    }
    debug_assert_eq!(wanted, 0, "the columns span all slots");
    String::from_utf8_lossy(&letters(bits)).into_owned()
}

fn letters(bits: u16) -> [u8; 4] {
    [12, 8, 4, 0].map(|shift| b'@' | (bits >> shift & 0xf) as u8)
}

struct Basis {
    origin: u16,
    /// The highest bit of a column, the column, and the bits that make it; highest first.
    columns: Vec<(u16, u16, u16)>,
}

static BASIS: LazyLock<Basis> = LazyLock::new(|| {
    let origin = crc16(&letters(0)) % SLOTS;
    let mut columns: Vec<(u16, u16, u16)> = Vec::new();
    for bit in (0..16).map(|bit| 1 << bit) {
        let (mut column, mut chosen) = ((crc16(&letters(bit)) % SLOTS) ^ origin, bit);
        for (high, other, bits) in &columns {
            if column & high != 0 {
                column ^= other;
                chosen ^= bits;
            }
        }
        if column != 0 {
            let high = 1 << column.ilog2();
            columns.push((high, column, chosen));
            columns.sort_by_key(|(high, ..)| std::cmp::Reverse(*high));
        }
    }
    Basis { origin, columns }
});

/// CRC-16/XMODEM, as the Cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!((slot("foo"), slot("{user1000}.following")), (12182, slot("user1000")));
        assert_eq!(slot("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot("foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn every_slot_has_a_tag() {
        for wanted in 0..SLOTS {
            assert_eq!(slot(&tag_of_slot(wanted)), wanted);
        }
    }
}
