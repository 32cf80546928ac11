import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/** Takes turns with a lock of ShedLock's, by the database's time: JDBC-URL USER NAME TURNS FOLDER. */
public final class Client {
    /** ShedLock never waits: a job that finds its lock taken is left out until it is due again. */
    private static final long DUE_EVERY_MILLIS = 3;

    private Client() {}

    public static void main(String[] args) throws Exception {
        int turns = Integer.parseInt(args[3]);
        Path folder = Path.of(args[4]);
        try (var connection = DriverManager.getConnection(args[0], args[1], "")) {
            var source = new SingleConnectionDataSource(connection, true);
            LockProvider provider = new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(source)).usingDbTime().build());
            for (int turn = 0; turn < turns; turn++) {
                SimpleLock lock = take(provider, args[2]);
                count(folder);
                lock.unlock();
            }
        }
    }

    private static SimpleLock take(LockProvider provider, String name) throws Exception {
        while (true) {
            Optional<SimpleLock> lock = provider.lock(
                new LockConfiguration(Instant.now(), name, Duration.ofSeconds(30), Duration.ZERO));
            if (lock.isPresent()) {
                return lock.get();
            }
            Thread.sleep(DUE_EVERY_MILLIS);
        }
    }

    /** A folder that must not be there, and a number in a file. */
    private static void count(Path folder) throws Exception {
        Path inside = Files.createDirectory(folder.resolve("inside"));
        Path count = folder.resolve("count");
        int number = Integer.parseInt(Files.readString(count).trim());
        Files.writeString(count, Integer.toString(number + 1));
        Files.delete(inside);
    }
}
