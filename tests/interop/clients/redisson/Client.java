import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson as a foreign client; the protocol is in ../README.md. */
public final class Client {
    private static final long TTL_SECONDS = 10;

    private Client() {}

    public static void main(String[] args) throws Exception {
        if (args.length < 3) {
            throw new IllegalArgumentException("see ../README.md");
        }
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:" + args[0])
            .setConnectionMinimumIdleSize(1).setConnectionPoolSize(4);
        RedissonClient redisson = Redisson.create(config);
        try {
            switch (args[2]) {
                case "turns" -> turns(redisson, args[1], Integer.parseInt(args[3]), Integer.parseInt(args[4]), args[5]);
                case "hold" -> hold(redisson.getLock(args[1]));
                case "attempt" -> attempt(redisson.getLock(args[1]));
                default -> throw new IllegalArgumentException("there is no " + args[2]);
            }
        } finally {
            redisson.shutdown();
        }
    }

    private static void turns(RedissonClient redisson, String key, int count, int pauseUs, String name) throws Exception {
        RLock lock = redisson.getLock(key);
        Random random = new Random();
        System.out.println("ready");
        System.in.read();
        long maxWait = 0;
        int overlaps = 0;
        for (int turn = 0; turn < count; turn++) {
            long start = System.nanoTime();
            lock.lock(TTL_SECONDS, TimeUnit.SECONDS);
            maxWait = Math.max(maxWait, System.nanoTime() - start);
            if (!inside(redisson, name)) {
                overlaps++;
            }
            lock.unlock();
            TimeUnit.MICROSECONDS.sleep(random.nextInt(2 * pauseUs + 1));
        }
        System.out.printf("turns=%d overlaps=%d max_wait_us=%d%n", count, overlaps, maxWait / 1000);
    }

    /** Counts one up in two steps, and tells whether nobody else was inside. */
    private static boolean inside(RedissonClient redisson, String name) {
        var counter = redisson.<String>getBucket("counter", StringCodec.INSTANCE);
        var marker = redisson.<String>getBucket("inside", StringCodec.INSTANCE);
        boolean alone = marker.setIfAbsent(name);
        String before = counter.get();
        Thread.yield();
        counter.set(String.valueOf((before == null ? 0 : Long.parseLong(before)) + 1));
        redisson.<String>getList("order", StringCodec.INSTANCE).add(name);
        marker.delete();
        return alone;
    }

    /** Takes the lock, and gives it back when told to. */
    private static void hold(RLock lock) throws Exception {
        if (!lock.tryLock()) {
            throw new IllegalStateException("the lock is held already");
        }
        System.out.println("ready");
        System.in.read();
        // The clock is the same for all processes of one machine.
        long released = System.nanoTime();
        lock.unlock();
        System.out.println("released_ns=" + released);
    }

    /** Asks once, without waiting. */
    private static void attempt(RLock lock) {
        try {
            System.out.println(lock.tryLock() ? "taken" : "refused");
        } catch (RuntimeException error) {
            System.out.println(String.valueOf(error.getMessage()).contains("WRONGTYPE") ? "wrongtype" : "error " + error);
        }
    }
}
