# Starts a sentinel, with what it has learnt before: which server is the primary, and who the others are.
set -eu
umask 077
configuration=/data/sentinel.conf
learnt='^sentinel (myid|monitor|current-epoch|config-epoch|leader-epoch|known-replica|known-sentinel) '
learnt=$(grep -E "$learnt" "$configuration" 2>/dev/null || echo "sentinel monitor stead redis-0.redis 6379 2")

{
  echo "port 26379"
  echo "dir /tmp"
  echo "protected-mode no"
  echo "aclfile /run/secrets/stead/sentinel.acl"
  echo "sentinel resolve-hostnames yes"
  echo "sentinel announce-hostnames yes"
  echo "sentinel announce-ip $HOSTNAME.redis"
  echo "$learnt"
  echo "sentinel down-after-milliseconds stead 2000"
  # Two sentinels that stand for election at once both lose, and may stand again after twice this time.
  echo "sentinel failover-timeout stead 3000"
  cat /run/secrets/stead/sentinel.conf
} >"$configuration.new"
mv "$configuration.new" "$configuration"
exec redis-server "$configuration" --sentinel
