import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * How Kafka's clients read values of sasl.jaas.config, each handed in as Base64.
 *
 * One line for each: "refused", or the login module and then name=value, all of them as Base64, with blanks between.
 */
public class JaasLines {
    public static void main(String[] arguments) {
        for (String argument : arguments) {
            String line = new String(Base64.getDecoder().decode(argument), StandardCharsets.UTF_8);
            System.out.println(read(line));
        }
    }

    private static String read(String line) {
        try {
            JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(line)));
            AppConfigurationEntry entry = context.configurationEntries().get(0);
            StringBuilder told = new StringBuilder(encoded(entry.getLoginModuleName()));
            for (Map.Entry<String, ?> option : new TreeMap<String, Object>(entry.getOptions()).entrySet())
                told.append(' ').append(encoded(option.getKey())).append('=')
                    .append(encoded(String.valueOf(option.getValue())));
            return told.toString();
        } catch (RuntimeException e) {
            return "refused";
        }
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
