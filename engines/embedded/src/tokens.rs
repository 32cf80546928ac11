use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use palisade_core::{ErrorKind, Result, Source, Token};
use uuid::Uuid;

use crate::error::{ENGINE, error, of_io};
use crate::folder::open_private;

/// How many numbers are reserved by one disk sync.
const BLOCK: u64 = 65_536;
/// A floor above this leaves too little of the number line to go on for ever.
const MAX_FLOOR: u64 = 1 << 62;

/// The file with the folder's number line: arrivals and tokens.
///
/// Two headers take turns, so that a power loss in the middle of a write leaves the other one; each
/// holds a *ceiling* that was synced before any number below it was used. The *cell* holds the last
/// number used. It is not synced: the page cache outlives every process, and after a reboot
/// counting goes on from the ceiling. All access is under the write transaction.
#[derive(Debug)]
pub(crate) struct TokenFile {
    file: File,
    path: PathBuf,
    source: Uuid,
}

const MAGIC: u64 = u64::from_le_bytes(*b"palitok1");
const HEADER_AT: [u64; 2] = [0, 512];
const CELL_AT: u64 = 1024;

/// What outlives a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    generation: u64,
    source: Uuid,
    pub(crate) boot: Uuid,
    /// No number above it was ever used.
    pub(crate) ceiling: u64,
}

/// What outlives a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    last: u64,
    ceiling: u64,
}

/// The number line within one transaction.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    tokens: &'a TokenFile,
    cell: Option<Cell>,
    reserved: bool,
}

impl TokenFile {
    /// Opens the file; `None` if there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<(Self, Header)>> {
        let file = match open_private(path, &mut OpenOptions::new()) {
            Ok(file) => file,
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(problem) => return Err(of_io(problem, "open", path)),
        };
        let mut tokens = Self { file, path: path.to_owned(), source: Uuid::nil() };
        let header = tokens.header()?;
        tokens.source = header.source;
        Ok(Some((tokens, header)))
    }

    /// Makes the file for a source of its own. Call under the write lock.
    pub(crate) fn create(path: &Path, header: Header) -> Result<()> {
        let half = path.with_extension("new");
        let file = open_private(&half, OpenOptions::new().create(true).truncate(true))
            .map_err(|problem| of_io(problem, "make", path))?;
        let tokens = Self { file, path: half.clone(), source: header.source };
        tokens.advance(header, header.boot)?;
        std::fs::rename(&half, path).map_err(|problem| of_io(problem, "make", path))
    }

    /// Moves on to a new boot: numbers of the last one may have been used up to the ceiling.
    ///
    /// The cell is written first, without any room in it: whoever is killed in between leaves
    /// either the old boot in the header, or a cell that makes the next one reserve.
    pub(crate) fn advance(&self, header: Header, boot: Uuid) -> Result<()> {
        let last = header.ceiling;
        self.write_cell(Cell { last, ceiling: last })?;
        let header = header.advanced(boot);
        self.write_header(header)?;
        self.write_cell(Cell { last, ceiling: header.ceiling })
    }

    /// Who counts these tokens.
    pub(crate) fn source(&self) -> Source {
        Source::new(format!("{ENGINE}-{}", self.source.simple()))
    }

    /// The number line for one transaction, read when the first number is drawn.
    pub(crate) fn numbers(&self) -> Numbers<'_> {
        Numbers { tokens: self, cell: None, reserved: false }
    }

    fn header(&self) -> Result<Header> {
        let read = |at| {
            let mut bytes = [0; 64];
            self.file.read_exact_at(&mut bytes, at).ok()?;
            Header::decode(&bytes)
        };
        HEADER_AT
            .into_iter()
            .filter_map(read)
            .max_by_key(|header| header.generation)
            .ok_or_else(|| self.damaged())
    }

    fn write_header(&self, header: Header) -> Result<()> {
        let header = Header { generation: header.generation + 1, ..header };
        let at = HEADER_AT[usize::from(header.generation.is_multiple_of(2))];
        self.file
            .write_all_at(&header.encode(), at)
            .and_then(|()| self.file.sync_data())
            .map_err(|problem| of_io(problem, "write", &self.path))
    }

    fn cell(&self) -> Result<Cell> {
        let mut bytes = [0; 24];
        self.file.read_exact_at(&mut bytes, CELL_AT).map_err(|_| self.damaged())?;
        let [last, ceiling, sum] = numbers_of(&bytes);
        if sum == checksum(&bytes[..16]) && last <= ceiling {
            Ok(Cell { last, ceiling })
        } else {
            Err(self.damaged())
        }
    }

    fn write_cell(&self, cell: Cell) -> Result<()> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&cell.last.to_le_bytes());
        bytes[8..16].copy_from_slice(&cell.ceiling.to_le_bytes());
        let sum = checksum(&bytes[..16]);
        bytes[16..].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&bytes, CELL_AT).map_err(|problem| of_io(problem, "write", &self.path))
    }

    /// A number line that others do not see would count twice.
    fn check_in_place(&self) -> Result<()> {
        let gone = rustix::fs::fstat(&self.file).map_or(true, |stat| stat.st_nlink == 0);
        if gone {
            let message = format!("{} was deleted while in use; restart this program", self.path.display());
            return Err(error(ErrorKind::Unavailable, message));
        }
        Ok(())
    }

    fn damaged(&self) -> palisade_core::Error {
        error(
            ErrorKind::Corrupt,
            format!(
                "{} is damaged; do not restore an old copy, its numbers were used. Stop the programs that use the folder and delete it: tokens then come from a new source, and fences refuse them until they are rebased",
                self.path.display()
            ),
        )
    }
}

impl Numbers<'_> {
    /// Draws the next number, greater than all before it and than `floor`.
    pub(crate) fn next(&mut self, floor: u64) -> Result<Token> {
        let mut cell = match self.cell {
            Some(cell) => cell,
            None => {
                self.tokens.check_in_place()?;
                self.tokens.cell()?
            }
        };
        if floor > MAX_FLOOR {
            return Err(error(ErrorKind::Invalid, format!("a token floor is at most {MAX_FLOOR}")));
        }
        cell.last = cell.last.max(floor) + 1;
        if cell.last > cell.ceiling {
            let header = self.tokens.header()?;
            cell.ceiling = cell.last.max(header.ceiling) + BLOCK;
            self.tokens.write_header(Header { ceiling: cell.ceiling, ..header })?;
            self.reserved = true;
        }
        self.cell = Some(cell);
        Token::new(cell.last).ok_or_else(|| error(ErrorKind::Full, "the number line is used up"))
    }

    /// Makes what was drawn known to every process. Before the commit, so that a number that is
    /// seen in a row is never drawn again. The new ceiling, if one was reserved.
    pub(crate) fn keep(&mut self) -> Result<Option<u64>> {
        let Some(cell) = self.cell.take() else { return Ok(None) };
        self.tokens.write_cell(cell)?;
        Ok(std::mem::take(&mut self.reserved).then_some(cell.ceiling))
    }
}

impl Header {
    /// A new source, whose numbers begin above `floor`.
    pub(crate) fn new(boot: Uuid, floor: u64) -> Self {
        Self { generation: 0, source: Uuid::new_v4(), boot, ceiling: floor }
    }

    /// The header with which `boot` begins.
    pub(crate) fn advanced(self, boot: Uuid) -> Self {
        Self { boot, ceiling: self.ceiling + BLOCK, ..self }
    }

    fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[16..32].copy_from_slice(self.source.as_bytes());
        bytes[32..48].copy_from_slice(self.boot.as_bytes());
        bytes[48..56].copy_from_slice(&self.ceiling.to_le_bytes());
        let sum = checksum(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 64]) -> Option<Self> {
        let [magic, generation, _, _, _, _, ceiling, sum] = numbers_of(bytes);
        let uuid = |at: usize| Uuid::from_slice(&bytes[at..at + 16]).ok();
        let header = Self { generation, source: uuid(16)?, boot: uuid(32)?, ceiling };
        (magic == MAGIC && sum == checksum(&bytes[..56])).then_some(header)
    }
}

fn numbers_of<const BYTES: usize, const N: usize>(bytes: &[u8; BYTES]) -> [u64; N] {
    let mut numbers = [0; N];
    for (number, chunk) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    }
    numbers
}

/// FNV-1a: enough to tell a torn or foreign record from ours.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(tokens: &TokenFile, floor: u64) -> u64 {
        let mut numbers = tokens.numbers();
        let drawn = numbers.next(floor).unwrap().get();
        numbers.keep().unwrap();
        drawn
    }

    fn made() -> (tempfile::TempDir, PathBuf, Uuid) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let boot = Uuid::new_v4();
        TokenFile::create(&path, Header::new(boot, 0)).unwrap();
        (folder, path, boot)
    }

    #[test]
    fn numbers_rise_across_opens_floors_blocks_and_boots() {
        let (_folder, path, _) = made();
        let (tokens, header) = TokenFile::open(&path).unwrap().unwrap();
        assert_eq!(draw(&tokens, 0), 1);
        assert_eq!(draw(&tokens, 0), 2);
        assert_eq!(draw(&tokens, 10 * BLOCK), 10 * BLOCK + 1);
        let (again, _) = TokenFile::open(&path).unwrap().unwrap();
        assert_eq!(again.source(), tokens.source());
        assert_eq!(draw(&again, 0), 10 * BLOCK + 2);
        let (_, latest) = TokenFile::open(&path).unwrap().unwrap();
        assert!(latest.generation > header.generation);
        again.advance(latest, Uuid::new_v4()).unwrap();
        assert!(draw(&tokens, 0) > 11 * BLOCK);
    }

    #[test]
    fn a_number_drawn_but_not_kept_was_never_used() {
        let (_folder, path, _) = made();
        let (tokens, _) = TokenFile::open(&path).unwrap().unwrap();
        assert_eq!(tokens.numbers().next(0).unwrap().get(), 1);
        assert_eq!(draw(&tokens, 0), 1);
    }

    #[test]
    fn killed_between_the_steps_of_a_new_boot_it_never_goes_back() {
        let (_folder, path, _) = made();
        let (tokens, header) = TokenFile::open(&path).unwrap().unwrap();
        let before = draw(&tokens, 0);
        let last = header.ceiling;
        // Only the first two of the three writes happened.
        tokens.write_cell(Cell { last, ceiling: last }).unwrap();
        tokens.write_header(Header { boot: Uuid::new_v4(), ceiling: last + BLOCK, ..header }).unwrap();
        assert!(draw(&tokens, 0) > last.max(before));
    }

    #[test]
    fn one_torn_header_is_survived_and_two_are_an_error() {
        let (_folder, path, boot) = made();
        let (tokens, header) = TokenFile::open(&path).unwrap().unwrap();
        tokens.write_header(Header { ceiling: 5 * BLOCK, ..header }).unwrap();
        tokens.file.write_all_at(&[9; 64], HEADER_AT[1]).unwrap();
        let (_, survived) = TokenFile::open(&path).unwrap().unwrap();
        assert_eq!(survived.boot, boot);
        tokens.file.write_all_at(&[9; 64], HEADER_AT[0]).unwrap();
        assert_eq!(TokenFile::open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_deleted_file_and_a_wild_floor_are_errors() {
        let (_folder, path, _) = made();
        let (tokens, _) = TokenFile::open(&path).unwrap().unwrap();
        assert_eq!(tokens.numbers().next(Token::MAX).unwrap_err().kind(), ErrorKind::Invalid);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tokens.numbers().next(0).unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
