# What the commands need of the machine. Sourced by them, checked before anything is downloaded.

cache=${MM2PY_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/mm2py}
[[ $cache == /* ]] || cache=$PWD/$cache

fail() {
    printf '%s: %s\n' "scripts/$(basename "$0")" "$*" >&2
    exit 1
}

# Java 17 or newer: Spark and the brokers run in it. JAVA_HOME wins over the PATH.
need_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java said version
    command -v "$java" >/dev/null ||
        fail "there is no $java; install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"
    said=$("$java" -version 2>&1) || fail "$java -version ends with exit code $?: $said"
    [[ $said =~ version\ \"(1\.)?([0-9]+) ]] && version=${BASH_REMATCH[2]}
    [[ ${version:-0} -ge 17 ]] ||
        fail "$java is Java ${version:-?}; install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless)"
}

# Maven gets the brokers' jars, once.
need_maven() {
    compgen -G "$cache/kafka-*/kafka_*.jar" >/dev/null || command -v mvn >/dev/null ||
        fail "there is no mvn to get Kafka's jars with; install Maven (Debian: apt-get install maven)"
}
