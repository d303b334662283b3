import java.io.File;

import org.apache.kerby.kerberos.kerb.server.KdcConfigKey;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/**
 * A KDC whose principals are written to keytabs: folder, realm, port and the lifetime of tickets in seconds, then each
 * principal with its keytab.
 */
public final class Kdc {
    private Kdc() {
    }

    public static void main(String[] words) throws Exception {
        SimpleKdcServer kdc = new SimpleKdcServer();
        kdc.setWorkDir(new File(words[0]));
        kdc.setKdcHost("127.0.0.1");
        kdc.setKdcRealm(words[1]);
        kdc.setKdcTcpPort(Integer.parseInt(words[2]));
        kdc.setAllowUdp(false);
        kdc.getKdcConfig().setLong(KdcConfigKey.MAXIMUM_TICKET_LIFETIME, Long.parseLong(words[3]));
        kdc.getKdcConfig().setLong(KdcConfigKey.MINIMUM_TICKET_LIFETIME, 1L);
        kdc.init();
        kdc.start();
        for (int at = 4; at < words.length; at += 2) {
            kdc.createPrincipal(words[at]);
            kdc.exportPrincipal(words[at], new File(words[at + 1]));
        }
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
