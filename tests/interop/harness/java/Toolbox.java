import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the mains of Kafka's tools one after the other in one JVM, since starting one takes seconds.
 *
 * In: the number of words, then each word (the class first), then what the tool finds on its standard
 * input. Out: the exit status, what it printed, what it complained about. All strings are a 4-byte size
 * and UTF-8.
 */
public final class Toolbox {
    /** How a tool's exit reaches us instead of ending the JVM. An Error, so that no tool catches it. */
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** A stream whose end can be moved: Scala's Console keeps the first System.out it sees. */
    private static final class Switch extends OutputStream {
        volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int b) throws IOException {
            target.write(b);
        }

        @Override
        public void write(byte[] b, int from, int length) throws IOException {
            target.write(b, from, length);
        }
    }

    private static final long HOOK_TIMEOUT_MS = 10_000;
    private static final List<Runnable> hooks = new ArrayList<>();
    private static volatile Integer status;

    public static void main(String[] arguments) throws Exception {
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Switch out = new Switch();
        Switch err = new Switch();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Exit.setExitProcedure((code, message) -> exited(code));
        Exit.setHaltProcedure((code, message) -> exited(code));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        while (true) {
            String[] words;
            byte[] input;
            try {
                words = new String[commands.readInt()];
                for (int i = 0; i < words.length; i++) {
                    words[i] = new String(read(commands), "UTF-8");
                }
                input = read(commands);
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            out.target = printed;
            err.target = complained;
            System.setIn(new ByteArrayInputStream(input));
            run(words);
            end();
            System.out.flush();
            System.err.flush();
            answers.writeInt(status);
            write(answers, printed.toByteArray());
            write(answers, complained.toByteArray());
            answers.flush();
        }
    }

    private static void exited(int code) {
        if (status == null) {
            status = code;
        }
        throw new Exited();
    }

    private static void run(String[] words) {
        status = null;
        String[] rest = new String[words.length - 1];
        System.arraycopy(words, 1, rest, 0, rest.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                status = status == null ? Integer.valueOf(1) : status;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            status = 127;
        }
        if (status == null) {
            status = 0;
        }
    }

    /** What a tool wanted to be done when the JVM ends is done when the tool has. */
    private static void end() throws InterruptedException {
        for (Runnable hook : hooks) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            thread.join(HOOK_TIMEOUT_MS);
        }
        hooks.clear();
    }

    private static byte[] read(DataInputStream commands) throws IOException {
        return commands.readNBytes(commands.readInt());
    }

    private static void write(DataOutputStream answers, byte[] bytes) throws IOException {
        answers.writeInt(bytes.length);
        answers.write(bytes);
    }
}
