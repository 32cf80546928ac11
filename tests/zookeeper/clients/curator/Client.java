import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Takes turns with a lock of Curator's: HOSTS KIND NAME TURNS FOLDER. */
public class Client {
    public static void main(String[] args) throws Exception {
        String path = "/locks/" + args[2];
        int turns = Integer.parseInt(args[3]);
        Path folder = Path.of(args[4]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], 15000, 5000, new ExponentialBackoffRetry(100, 5));
        client.start();
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        for (int turn = 0; turn < turns; turn++) {
            switch (args[1]) {
                case "mutex" -> under(new InterProcessMutex(client, path), () -> count(folder));
                case "write" -> under(both.writeLock(), () -> count(folder));
                case "read" -> under(both.readLock(), () -> look(folder));
                case "latch" -> {
                    try (LeaderLatch latch = new LeaderLatch(client, path, "curator")) {
                        latch.start();
                        latch.await();
                        count(folder);
                    }
                }
                case "semaphore" -> {
                    Lease lease = new InterProcessSemaphoreV2(client, path, 2).acquire();
                    try {
                        sit(folder);
                    } finally {
                        lease.close();
                    }
                }
                default -> throw new IllegalArgumentException(args[1]);
            }
        }
        client.close();
    }

    interface Turn {
        void take() throws Exception;
    }

    static void under(InterProcessLock lock, Turn turn) throws Exception {
        lock.acquire();
        try {
            turn.take();
        } finally {
            lock.release();
        }
    }

    /** A folder that must not be there, and a number in a file. */
    static void count(Path folder) throws Exception {
        Path inside = Files.createDirectory(folder.resolve("inside"));
        Path count = folder.resolve("count");
        int number = Integer.parseInt(Files.readString(count).trim());
        Files.writeString(count, Integer.toString(number + 1));
        Files.delete(inside);
    }

    /** One of two seats, of which one must be free, and our letter in a file. */
    static void sit(Path folder) throws Exception {
        for (String name : new String[] {"seat", "second-seat"}) {
            Path seat = folder.resolve(name);
            try {
                Files.createDirectory(seat);
            } catch (FileAlreadyExistsException taken) {
                continue;
            }
            Path turns = folder.resolve(name + "-turns");
            Files.write(turns, new byte[] {'c'}, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            Thread.sleep(1);
            Files.delete(seat);
            return;
        }
        throw new IllegalStateException("three are inside at once");
    }

    static void look(Path folder) throws Exception {
        for (int look = 0; look < 3; look++) {
            if (Files.exists(folder.resolve("inside"))) {
                throw new IllegalStateException("a writer is inside beside a reader");
            }
            Thread.sleep(1);
        }
    }
}
