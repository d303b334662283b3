import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * How java.util.Properties reads each file of a folder: FOLDER.
 *
 * Each line of the answer is the file's name, a key and its value, the latter two as hexadecimal UTF-16; or the file's
 * name and "refused". Files whose name begins with utf8 are read through a reader of UTF-8, others as MirrorMaker does.
 */
public class PropertiesFiles {
    public static void main(String[] arguments) throws Exception {
        List<Path> files;
        try (Stream<Path> found = Files.list(Path.of(arguments[0]))) {
            files = found.sorted().collect(Collectors.toList());
        }
        StringBuilder answer = new StringBuilder();
        for (Path file : files) {
            String name = file.getFileName().toString();
            Properties properties = new Properties();
            try (InputStream in = Files.newInputStream(file)) {
                if (name.startsWith("utf8")) {
                    properties.load(new InputStreamReader(in, StandardCharsets.UTF_8));
                } else {
                    properties.load(in);
                }
            } catch (IllegalArgumentException refused) {
                answer.append(name).append("\trefused\n");
                continue;
            }
            properties.forEach((key, value) ->
                answer.append(name).append('\t').append(hex(key)).append('\t').append(hex(value)).append('\n'));
        }
        System.out.print(answer);
    }

    private static String hex(Object text) {
        StringBuilder digits = new StringBuilder();
        text.toString().chars().forEach(character -> digits.append(String.format("%04x", character)));
        return digits.toString();
    }
}
