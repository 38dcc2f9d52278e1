# Starts a server of PostgreSQL: as a standby where another server is the primary, else as what it was.
set -euo pipefail

password=$(cat /run/secrets/stead/password)
(umask 077 && echo "*:*:*:postgres:$password" >/tmp/pgpass)

others=()
for server in postgres-0 postgres-1 postgres-2; do
  [ "$server" = "$HOSTNAME" ] || others+=("$server.postgres")
done
primary="host=$(IFS=, && echo "${others[*]}") user=postgres passfile=/tmp/pgpass connect_timeout=2 target_session_attrs=read-write"

# Prints which timeline a primary writes, and nothing for a standby: each promotion begins one, with a greater number.
timeline() {
  psql --no-psqlrc --tuples-only --no-align --dbname "$1" --command \
    "SELECT CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END" 2>/dev/null
}

another_answers() {
  local other
  for other in "${others[@]}"; do
    [ "$(pg_isready --quiet --timeout 2 --host "$other" || echo $?)" = 2 ] || return 0
  done
  return 1
}

copy_primary() {
  rm -rf "$PGDATA.new"
  pg_basebackup --dbname "$primary" --pgdata "$PGDATA.new" --checkpoint fast
  sed -i '/^primary_conninfo/d' "$PGDATA.new/postgresql.auto.conf"
  touch "$PGDATA.new/standby.signal"
  rm -rf "$PGDATA"
  mv "$PGDATA.new" "$PGDATA"
}

# A primary that was replaced stops. Nothing that it had confirmed is lost: without a standby it confirms nothing.
leave_when_replaced() {
  local mine theirs
  while sleep 3; do
    mine=$(timeline "user=postgres") || continue
    [ "$mine" ] && theirs=$(timeline "$primary") || continue
    if [[ $theirs > $mine ]]; then
      echo "another server was promoted (timeline $theirs): this one will be its standby"
      pg_ctl stop --mode immediate
    fi
  done
}

is_new=$([ -s "$PGDATA/PG_VERSION" ] || echo yes)
if [ "$is_new" ] && [ "$HOSTNAME" = postgres-0 ]; then
  # The first start, unless this is a new volume in place of a lost one.
  for _ in 1 2 3 4 5; do
    if another_answers; then
      until timeline "$primary"; do sleep 2; done
      break
    fi
    sleep 1
  done
elif [ "$is_new" ]; then
  until timeline "$primary"; do sleep 2; done
fi
if [ ! -e "$PGDATA/standby.signal" ] && timeline "$primary"; then
  copy_primary
fi

leave_when_replaced &
POSTGRES_PASSWORD=$password exec /usr/local/bin/docker-entrypoint.sh postgres \
  -c config_file=/etc/stead/postgresql.conf -c "cluster_name=$HOSTNAME"
