import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Measures Curator's mutex, for `palisade bench` to stand beside: HOSTS pairs NAME COUNT prints how many microseconds
 * each lock and unlock took, HOSTS crowd NAME SIZE TURNS how many locks per second a crowd has that wants the same one.
 */
public class Times {
    /** Before anything counts: Java is slow until it has seen what it runs. */
    static final int WARM_PAIRS = 1000;

    static final int WARM_TURNS = 150;

    public static void main(String[] args) throws Exception {
        String path = "/locks/" + args[2];
        int count = Integer.parseInt(args[3]);
        switch (args[1]) {
            case "pairs" -> pairs(args[0], path, count);
            case "crowd" -> crowd(args[0], path, count, Integer.parseInt(args[4]));
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    static void pairs(String hosts, String path, int count) throws Exception {
        try (CuratorFramework client = connect(hosts)) {
            InterProcessMutex mutex = new InterProcessMutex(client, path);
            for (int turn = 0; turn < WARM_PAIRS + count; turn++) {
                long began = System.nanoTime();
                once(mutex);
                if (turn >= WARM_PAIRS) {
                    System.out.printf(Locale.ROOT, "%.1f%n", (System.nanoTime() - began) / 1e3);
                }
            }
        }
    }

    /** Each has a connection and a session of its own, as processes would. */
    static void crowd(String hosts, String path, int size, int turns) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(size);
        for (int place = 0; place < size; place++) {
            clients.add(connect(hosts));
        }
        all(threads, clients, path, WARM_TURNS);
        long began = System.nanoTime();
        all(threads, clients, path, turns);
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(Locale.ROOT, "%.3f%n", size * turns / seconds);
        threads.shutdown();
        clients.forEach(CuratorFramework::close);
    }

    static void all(ExecutorService threads, List<CuratorFramework> clients, String path, int turns) throws Exception {
        List<Callable<Void>> tasks = new ArrayList<>();
        for (CuratorFramework client : clients) {
            tasks.add(() -> {
                InterProcessMutex mutex = new InterProcessMutex(client, path);
                for (int turn = 0; turn < turns; turn++) {
                    once(mutex);
                }
                return null;
            });
        }
        for (Future<Void> done : threads.invokeAll(tasks)) {
            done.get();
        }
    }

    static void once(InterProcessMutex mutex) throws Exception {
        mutex.acquire();
        mutex.release();
    }

    static CuratorFramework connect(String hosts) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(hosts, 15000, 5000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        return client;
    }
}
