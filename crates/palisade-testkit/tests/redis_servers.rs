//! Real servers: they come up, die, come back with or without their data, and lose track of time.

use std::time::{Duration, Instant};

use palisade_testkit::servers::{ClusterSet, Persistence, RedisOptions, RedisServer, SentinelSet};

/// Says how long a start took, for whoever runs this with `--nocapture`.
async fn started(options: RedisOptions) -> RedisServer {
    let start = Instant::now();
    let server = RedisServer::start(options).await.unwrap();
    println!("{} after {:?}", server.called(), start.elapsed());
    server
}

#[tokio::test]
async fn a_killed_server_comes_back_with_its_data_or_without() {
    let server =
        started(RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() }).await;
    let (address, pid) = (server.address(), server.pid());
    server.ask(&["SET", "kept", "yes"]).await.unwrap();
    server.kill().await.unwrap();
    assert!(server.ask(&["PING"]).await.is_err());
    server.start_again(false).await.unwrap();
    assert_eq!(server.ask(&["GET", "kept"]).await.unwrap().text(), "yes");
    assert_eq!(server.address(), address);
    assert_ne!(server.pid(), pid);
    server.terminate().await.unwrap();
    server.start_again(true).await.unwrap();
    assert_eq!(server.ask(&["DBSIZE"]).await.unwrap().text(), "0");
}

#[tokio::test]
async fn a_stopped_server_answers_when_it_goes_on() {
    let server = started(RedisOptions::default()).await;
    server.stop().unwrap();
    let ask = server.ask(&["PING"]);
    tokio::pin!(ask);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut ask).await.is_err());
    server.go_on().unwrap();
    assert_eq!(ask.await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn a_shifted_clock_ends_a_ttl_early_and_late() {
    let server = started(RedisOptions { clock: true, ..RedisOptions::default() }).await;
    let left = async |key: &str| {
        let left = server.ask(&["PTTL", key]).await.unwrap();
        left.text().parse::<i64>().unwrap()
    };
    server.ask(&["SET", "early", "x", "PX", "60000"]).await.unwrap();
    server.ask(&["SET", "late", "x", "PX", "600000"]).await.unwrap();
    server.shift_clock(120).unwrap();
    assert_eq!(left("early").await, -2);
    assert!((1..=480_000).contains(&left("late").await));
    server.shift_clock(-120).unwrap();
    assert!((700_000..=720_000).contains(&left("late").await));
    // A restarted server goes by the same clock.
    let truth = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    server.kill().await.unwrap();
    server.start_again(false).await.unwrap();
    let time: u64 = server.ask(&["TIME"]).await.unwrap().list()[0].text().parse().unwrap();
    assert!(truth.abs_diff(time) >= 100, "{truth} {time}");
    server.shift_clock(0).unwrap();
}

#[tokio::test]
async fn a_server_can_seem_to_have_been_up_for_long() {
    let up_for = Duration::from_mins(5);
    let server = started(RedisOptions { clock: true, up_for, ..RedisOptions::default() }).await;
    let uptime = async || {
        let info = server.ask(&["INFO", "server"]).await.unwrap();
        info.field("uptime_in_seconds").unwrap().parse::<u64>().unwrap()
    };
    let limit = Instant::now() + Duration::from_secs(5);
    // The server looks at its clock ten times a second.
    while uptime().await < 299 {
        assert!(Instant::now() < limit, "it still says {}", uptime().await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill().await.unwrap();
    server.start_again(true).await.unwrap();
    assert!(uptime().await < 10);
}

#[tokio::test]
async fn options_and_logins_reach_the_server() {
    let args = ["--requirepass", "s3cret", "--maxmemory-policy", "allkeys-lru"].map(str::to_owned).to_vec();
    let login = Some(("default".to_owned(), "s3cret".to_owned()));
    let server = started(RedisOptions { args, login, ..RedisOptions::default() }).await;
    let policy = server.ask(&["CONFIG", "GET", "maxmemory-policy"]).await.unwrap();
    assert_eq!(policy.list()[1].text(), "allkeys-lru");
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let missing = RedisOptions { program: "no-such-redis".into(), ..RedisOptions::default() };
    let problem = format!("{:#}", RedisServer::start(missing).await.unwrap_err());
    assert!(problem.contains("apt-get install redis-server"), "{problem}");
    let args = vec!["--maxmemory-policy".to_owned(), "nonsense".to_owned()];
    let problem = RedisServer::start(RedisOptions { args, ..RedisOptions::default() }).await.unwrap_err();
    let problem = format!("{problem:#}");
    assert!(problem.contains("ended with") && problem.contains("maxmemory-policy"), "{problem}");
}

#[tokio::test]
async fn sentinels_fail_over_when_the_primary_is_killed_or_stopped_or_when_asked() {
    let start = Instant::now();
    let set = SentinelSet::start(RedisOptions::default()).await.unwrap();
    println!("primary, replica and sentinels after {:?}", start.elapsed());
    let first = set.primary().await.unwrap();
    first.ask(&["SET", "kept", "yes"]).await.unwrap();
    set.replicated().await.unwrap();

    let start = Instant::now();
    first.kill().await.unwrap();
    let second = set.primary_after(first.address()).await.unwrap();
    println!("a new primary {:?} after the old one was killed", start.elapsed());
    assert_eq!(second.ask(&["GET", "kept"]).await.unwrap().text(), "yes");
    first.start_again(false).await.unwrap();
    set.settled().await.unwrap();

    let start = Instant::now();
    second.stop().unwrap();
    set.primary_after(second.address()).await.unwrap();
    println!("a new primary {:?} after the old one was stopped", start.elapsed());
    second.go_on().unwrap();
    set.settled().await.unwrap();

    let start = Instant::now();
    let third = set.fail_over().await.unwrap();
    println!("a new primary {:?} after it was asked for", start.elapsed());
    assert_eq!(third.address(), second.address());
}

#[tokio::test]
async fn a_cluster_serves_all_slots_also_after_a_restart() {
    let start = Instant::now();
    let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
    let set = ClusterSet::start(options).await.unwrap();
    println!("cluster after {:?}", start.elapsed());
    // The slot of foo is 12182: the last node's.
    set.servers[2].ask(&["SET", "foo", "bar"]).await.unwrap();
    let moved = set.servers[0].ask(&["GET", "foo"]).await.unwrap_err();
    assert!(format!("{moved:#}").contains(&format!("MOVED 12182 {}", set.servers[2].address())), "{moved:#}");
    set.servers[2].kill().await.unwrap();
    let start = Instant::now();
    set.servers[2].start_again(false).await.unwrap();
    set.serves().await.unwrap();
    println!("cluster again after {:?}", start.elapsed());
    assert_eq!(set.servers[2].ask(&["GET", "foo"]).await.unwrap().text(), "bar");
}
