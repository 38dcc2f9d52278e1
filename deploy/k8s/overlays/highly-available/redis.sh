# Starts a server of Redis, with the command that it is given: as a replica of the primary that a sentinel names.
set -eu
umask 077
configuration=/data/redis.conf
me=$HOSTNAME.redis

primary=$(
  for server in redis-0 redis-1 redis-2; do
    timeout 2 redis-cli -h "$server.redis" -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME stead 2>/dev/null
  done | grep -m 1 '\.redis$' || true
)
if [ -z "$primary" ] && [ -e "$configuration" ]; then # sentinels write the role of a server into its configuration
  primary=$(sed -n 's/^replicaof \([^ ]*\) .*/\1/p' "$configuration")
  primary=${primary:-$me}
fi
primary=${primary:-redis-0.redis}

{
  cat /run/secrets/stead/replication.conf
  echo "replica-announce-ip $me"
  echo "repl-diskless-sync-delay 0"
  # A primary that no replica follows refuses writes, so that a replaced one confirms none.
  echo "min-replicas-to-write 1"
  echo "min-replicas-max-lag 3"
  [ "$primary" = "$me" ] || echo "replicaof $primary 6379"
} >"$configuration"
server=$1
shift
exec "$server" "$configuration" "$@"
