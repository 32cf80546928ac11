use super::Format;
use crate::history::{Answer, Call, History};

const JEPSEN: &str = "\
INFO  jepsen.util - 0\t:invoke\t:read\tnil
INFO  jepsen.core - Worker 0 starting
INFO  jepsen.util - 0\t:ok\t:read\tnil
INFO  jepsen.util - 1\t:invoke\t:write\t4
INFO  jepsen.util - 1\t:info\t:write\t:timed-out
INFO  jepsen.util - 1\t:invoke\t:cas\t[4 2]
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
INFO  jepsen.util - 1\t:fail\t:cas\t[4 2]
";

const LOCK: &str = "\
[{:type :invoke, :f :acquire, :process 1, :time 3, :index 0}
 {:type :info, :f :start, :process :nemesis, :value nil}
#jepsen.history.Op{:type :ok :f :acquire :process 1 :value {:fence 7 :client \"a\\\"b\"}} ; told
 {:type :invoke, :f :release, :process 1} {:type :fail, :f :release, :process 1, :error [:not-held \"x\"]}]
";

const STORE: &str = "\
{:process 0, :type :invoke, :f :append, :key \"a\", :value \"x 0 y\"}
{:process 0, :type :ok, :f :append, :key \"a\", :value \"x 0 y\"}
{:process 0, :type :invoke, :f :get, :key \"a\", :value nil}
{:process 0, :type :ok, :f :get, :key \"a\", :value \"x 0 y\"}
";

const OWN: &str = "\
{\"event\":\"call\",\"op\":1,\"process\":1,\"at\":5,\"key\":\"k\",\"call\":\"acquire\",\"mode\":\"exclusive\"}
{\"event\":\"return\",\"op\":1,\"at\":6,\"answer\":\"granted\",\"token\":\"3\"}
";

#[test]
fn a_jepsen_log() {
    let (history, format) = History::read(JEPSEN).unwrap();
    assert_eq!(format, Format::Jepsen);
    let answers: Vec<&Answer> = history.ops.iter().map(|op| &op.answer).collect();
    assert_eq!(*answers[0], Answer::Value { value: None, version: None });
    assert!(history.ops[1].is_unknown());
    assert_eq!(history.ops[2].call, Call::Cas { from: "4".into(), to: "2".into() });
    assert_eq!(*answers[2], Answer::Refused { version: None, stale: false });
}

#[test]
fn an_edn_vector() {
    let (history, format) = History::read(LOCK).unwrap();
    assert_eq!(format, Format::Edn);
    assert_eq!(history.ops.len(), 2);
    let token = palisade_core::Token::new(7);
    assert_eq!(history.ops[0].answer, Answer::Granted { token, slot: None, until: None });
    assert!(history.ops[1].had_no_effect());
}

#[test]
fn edn_maps_one_by_one() {
    let (history, format) = History::read(STORE).unwrap();
    assert_eq!(format, Format::Edn);
    assert_eq!(&*history.ops[1].key, "a");
    assert_eq!(history.ops[1].answer, Answer::Value { value: Some("x 0 y".into()), version: None });
}

#[test]
fn our_own_lines() {
    let (history, format) = History::read(OWN).unwrap();
    assert_eq!((format, history.ops.len()), (Format::Own, 1));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, problem) in [
        ("hello", "this is no history"),
        ("", "this is no history"),
        ("# A heading\n", "this is no history"),
        ("{:type :ok, :f :read, :process 1}", "line 1: process 1 is answered and did not ask"),
        ("{:type :invoke, :f :frob, :process 1}", "line 1: no operation is called \"frob\""),
        ("\n{:type :invoke, :f :cas, :process 1 :value 3}", "line 2: cas needs [old new], not 3"),
        ("[{:type :invoke, :f :read, :process 1}", "line 1: the last ']' is missing"),
        ("{:type :invoke,\n :f :read", "line 2: '}' is missing; it was opened in line 1"),
        ("{:type :invoke :f}", "line 1: a map has a key without a value"),
        ("{:type :later :f :read :process 1}", "line 1: :later is no :type"),
        ("INFO  jepsen.util - 0\t:invoke\t:cas\t[1", "line 1: ']' is missing"),
        ("{\"event\":\"nothing\"}\n", "line 1: "),
    ] {
        let found = History::read(text).unwrap_err();
        assert!(found.starts_with(problem), "{text:?}: {found}");
    }
    let deep = "[".repeat(100_000);
    assert!(History::read(&deep).unwrap_err().contains("nested too deep"));
}

/// Whatever is cut off or changed, reading it is an answer or an error, never a panic.
#[test]
fn damaged_histories_do_no_harm() {
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let strange = [
        "{",
        "}",
        "[",
        ")",
        "\"",
        ":",
        "#",
        "\\",
        ";",
        "nil",
        "\t",
        "\n",
        "ü",
        "\u{0}",
        "99999999999999999999",
    ];
    for text in [JEPSEN, LOCK, STORE, OWN] {
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = History::read(&text[..end]);
            let _ = History::read(&text[end..]);
        }
        for _ in 0..3_000 {
            let mut damaged: Vec<char> = text.chars().collect();
            for _ in 0..=random(4) {
                let at = random(damaged.len());
                let until = (at + random(6)).min(damaged.len());
                damaged.splice(at..until, strange[random(strange.len())].chars());
            }
            let damaged: String = damaged.into_iter().collect();
            if let Ok((history, _)) = History::read(&damaged) {
                let _ = history.holds();
            }
        }
    }
}
