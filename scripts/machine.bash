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

# A Python that is new enough, by name or path.
find_python() {
    local name
    for name in ${MM2PY_PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    fail "no Python 3.11 or newer under the name(s) ${MM2PY_PYTHON:-python3, python3.14, python3.13, python3.12, python3.11};" \
        "install one (Debian: apt-get install python3 python3-venv), or name it in MM2PY_PYTHON"
}
