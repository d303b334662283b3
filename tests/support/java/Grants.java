import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * Who may do what on a cluster: BOOTSTRAP, then any of
 * grant|revoke PRINCIPAL TOPIC|GROUP|CLUSTER LITERAL|PREFIXED NAME OPERATION[,OPERATION...], password USER PASSWORD,
 * store LISTENER PATH (a broker's key store from now on).
 */
public class Grants {
    public static void main(String[] words) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[0]))) {
            for (int at = 1; at < words.length; ) {
                if (words[at].equals("password")) {
                    ScramCredentialInfo how = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096);
                    admin.alterUserScramCredentials(
                        List.of(new UserScramCredentialUpsertion(words[at + 1], how, words[at + 2]))).all().get();
                    at += 3;
                    continue;
                }
                if (words[at].equals("store")) {
                    ConfigEntry path = new ConfigEntry(
                        "listener.name." + words[at + 1].toLowerCase() + ".ssl.keystore.location", words[at + 2]);
                    admin.incrementalAlterConfigs(Map.of(
                        new ConfigResource(ConfigResource.Type.BROKER, "0"),
                        List.of(new AlterConfigOp(path, AlterConfigOp.OpType.SET)))).all().get();
                    at += 3;
                    continue;
                }
                ResourcePattern on = new ResourcePattern(
                    ResourceType.valueOf(words[at + 2]), words[at + 4], PatternType.valueOf(words[at + 3]));
                List<AclBinding> bindings = new ArrayList<>();
                for (String operation : words[at + 5].split(","))
                    bindings.add(new AclBinding(on, new AccessControlEntry(
                        words[at + 1], "*", AclOperation.valueOf(operation), AclPermissionType.ALLOW)));
                if (words[at].equals("grant"))
                    admin.createAcls(bindings).all().get();
                else
                    admin.deleteAcls(bindings.stream().map(AclBinding::toFilter).toList()).all().get();
                at += 6;
            }
        }
    }
}
