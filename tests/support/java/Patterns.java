import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/**
 * What java.util.regex makes of patterns and names. The arguments are two files with one of them on each line; for each
 * pattern a line: 1 or 0 for each name that it matches or not, or "refused".
 */
public class Patterns {
    public static void main(String[] arguments) throws Exception {
        List<String> patterns = Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8);
        List<String> names = Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8);
        for (String text : patterns) {
            StringBuilder line = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(text);
                for (String name : names) {
                    line.append(pattern.matcher(name).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException refused) {
                line.append("refused");
            }
            System.out.println(line);
        }
    }
}
