//! The tables and functions in the database.
//!
//! A table has a key, a value and the stamp of the commit that wrote the row last. All rows are read by `get_v2` and
//! written by `commit_v2`. Nodes need no right but to execute these functions, and no other role has it.
//!
//! `changes` has the rows of the catalog that were changed in the last minutes, with the generation that the change made
//! and the one before it. So a reader sees whether the list has all changes since a generation.
//!
//! Nodes of two releases run side by side during an upgrade. So a function that changes gets a new name, such as `get_v3`.
//! The names of these two also end with the number of the newest table, such as `get_v2_27`, so a release with another
//! table has functions of its own. A node whose functions are missing does not start.

use std::fmt::Write;
use std::sync::LazyLock;

use crate::store::engine::TableId;
use crate::store::schema::META;
use crate::store::tables::{self, CLIENTS};

/// Reads rows and ranges. See [`super::fetch`].
pub(super) static GET: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT n, k, v, s FROM {}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        function("get_v2")
    )
});

/// Commits a batch of transactions. See [`super::commit`].
pub(super) static COMMIT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)",
        function("commit_v2")
    )
});

/// Forgets the results of 10,000 old batches at most, and old changes of the catalog. This does not wait for the standby.
pub(super) const FORGET: &str = "SELECT set_config('synchronous_commit', 'off', true), idsvc.forget_v1()";

/// Stores the clock of a node, in milliseconds ahead of the database's. Reads the clocks of all live nodes, and whether each
/// node has lived for a while. This does not wait for the standby.
pub(super) const BEAT: &str = "SELECT b.node, b.ahead, b.is_settled, set_config('synchronous_commit', 'off', true) FROM idsvc.beat_v1($1, $2) b";

/// `n` of the row of `get_v2` that has the generation of the catalog, in `s`.
pub(super) const GENERATION_ROW: i32 = -1;
/// `n` of the row of `get_v2` that has the time of the database, in microseconds since the epoch, in `s`.
pub(super) const CLOCK_ROW: i32 = -2;
/// `n` of the rows of `get_v2` with the changes since a generation: the number of the table and the key in `k`, the
/// generation before the change in `v`, the one after it in `s`.
pub(super) const CHANGE_ROW: i32 = -3;
/// `n` of the rows of `get_v2` with the keys that the database has found: the number of the row of a user in `s`, its key in
/// `k`. The row itself comes after the other points.
pub(super) const USER_KEY_ROW: i32 = -4;
/// The most changes that a node reads one by one. `get_v2` returns one more, which shows that it has missed too many.
pub(super) const MOST_CHANGES: usize = 2000;

/// One process at a time sets up a database. The lock ends with the transaction.
pub(super) const SETUP_LOCK: &str = "SELECT pg_advisory_xact_lock(7236274921)";

/// A text that differs if a table or a function is added or changed.
pub(super) const DEFINITIONS: &str = "SELECT concat(
  (SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('idsvc')),
  (SELECT md5(string_agg(prosrc || coalesce(proconfig::text, ''), '' ORDER BY proname, pronargs)) FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('idsvc')))";

/// Gives the catalog another generation. It is the time, so that no database has one that another one had.
const COUNT_GENERATION: &str = "UPDATE idsvc.generation SET n = greatest(n + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)";
/// The same after any change. Nodes read the whole catalog.
pub(super) static REPLACE_CATALOG: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM idsvc.changes; {COUNT_GENERATION}"));

/// The settings under which each function runs. An index is used even if the table was small when the plan was made. A
/// call that waits for a lock gives up soon, because others wait for the call.
const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SECURITY DEFINER";

/// The name of a function that reads or writes the tables of this release.
fn function(name: &str) -> String {
    let newest_table = tables::all().map(TableId::index).max();
    format!("idsvc.{name}_{}", newest_table.unwrap_or_default())
}

/// Creates what is missing. `IF NOT EXISTS` and `OR REPLACE` make it safe to run again.
pub(super) fn setup() -> String {
    let mut sql = String::from(
        "CREATE SCHEMA IF NOT EXISTS idsvc;
CREATE SEQUENCE IF NOT EXISTS idsvc.stamps;
CREATE TABLE IF NOT EXISTS idsvc.generation (n int8 NOT NULL);
INSERT INTO idsvc.generation SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8 WHERE NOT EXISTS (SELECT FROM idsvc.generation);
CREATE TABLE IF NOT EXISTS idsvc.changes (n int8, t int2, k bytea, before int8 NOT NULL, PRIMARY KEY (n, t, k));
CREATE TABLE IF NOT EXISTS idsvc.nodes (node bytea PRIMARY KEY, ahead int8 NOT NULL, since timestamptz NOT NULL, beat_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS idsvc.batches (id bytea PRIMARY KEY, failed int2[] NOT NULL, at timestamptz NOT NULL DEFAULT now());
",
    );
    for table in tables::all() {
        let _ = writeln!(
            sql,
            "CREATE TABLE IF NOT EXISTS idsvc.{} (k bytea PRIMARY KEY, v bytea NOT NULL, s int8 NOT NULL) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);",
            table.name()
        );
    }
    sql.push_str(&get());
    sql.push_str(&commit());
    sql.push_str(BEAT_FUNCTION);
    let _ = writeln!(
        sql,
        "CREATE OR REPLACE FUNCTION idsvc.forget_v1() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' SECURITY DEFINER
AS $$ DELETE FROM idsvc.batches WHERE ctid = ANY (ARRAY(SELECT b.ctid FROM idsvc.batches b WHERE b.at < now() - interval '10 minutes' LIMIT 10000 FOR UPDATE SKIP LOCKED));
DELETE FROM idsvc.changes WHERE n < (extract(epoch FROM now() - interval '10 minutes') * 1000000)::int8 $$;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA idsvc FROM PUBLIC;"
    );
    sql
}

/// A command that is no node has no name, and stores nothing.
const BEAT_FUNCTION: &str = "CREATE OR REPLACE FUNCTION idsvc.beat_v1(own bytea, own_ahead int8)
RETURNS TABLE (node bytea, ahead int8, is_settled bool) LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' SECURITY DEFINER AS $$
#variable_conflict use_column
BEGIN
IF own IS NOT NULL THEN
  INSERT INTO idsvc.nodes VALUES (own, own_ahead, clock_timestamp(), clock_timestamp())
    ON CONFLICT (node) DO UPDATE SET ahead = excluded.ahead, beat_at = excluded.beat_at;
  DELETE FROM idsvc.nodes WHERE beat_at < clock_timestamp() - interval '1 minute';
END IF;
RETURN QUERY SELECT n.node, n.ahead, n.beat_at - n.since > interval '5 seconds' FROM idsvc.nodes n WHERE n.beat_at > clock_timestamp() - interval '5 seconds';
END $$;
";

/// Whether no table has a row but the one of the schema, which a database has once it is set up.
pub(super) fn is_empty() -> String {
    let filled = tables::all().map(|table| {
        let rows = if table == META.id() { " WHERE k <> $1" } else { "" };
        format!("EXISTS (SELECT FROM idsvc.{}{rows})", table.name())
    });
    format!("SELECT NOT ({})", filled.collect::<Vec<_>>().join(" OR "))
}

/// A statement for each table, which runs only if `tables` has the table's number.
fn for_each_table(tables: &str, statement: impl Fn(TableId) -> String) -> String {
    tables::all().fold(String::new(), |mut sql, table| {
        let _ = writeln!(
            sql,
            "IF {} = ANY({tables}) THEN {} END IF;",
            table.index(),
            statement(table)
        );
        sql
    })
}

/// A branch for each table, of a `CASE` over the table's number.
fn branches(statement: impl Fn(TableId) -> String) -> String {
    tables::all().fold(String::new(), |mut sql, table| {
        let _ = writeln!(sql, "WHEN {} THEN {}", table.index(), statement(table));
        sql
    })
}

fn get() -> String {
    let points = for_each_table("point_tables", |table| {
        format!(
            "RETURN QUERY SELECT p.n::int4, NULL::bytea, r.v, r.s FROM unnest(point_tables, point_keys) WITH ORDINALITY AS p(t, k, n), LATERAL (SELECT x.v, x.s FROM idsvc.{} x WHERE x.k = p.k OFFSET 0) r WHERE p.t = {};",
            table.name(),
            table.index()
        )
    });
    let keys_of_users: String = tables::all()
        .filter(|table| !table.user_mark().is_empty())
        .map(key_of_user)
        .collect();
    let ranges = branches(|table| {
        format!(
            "IF range_to[i] IS NULL THEN
  RETURN QUERY SELECT i, r.k, r.v, r.s FROM idsvc.{name} r WHERE r.k >= range_from[i] ORDER BY r.k LIMIT range_limits[i];
ELSE
  RETURN QUERY SELECT i, r.k, r.v, r.s FROM idsvc.{name} r WHERE r.k >= range_from[i] AND r.k < range_to[i] ORDER BY r.k LIMIT range_limits[i];
END IF;",
            name = table.name()
        )
    });
    format!(
        "CREATE OR REPLACE FUNCTION {function}(
  point_tables int2[], point_keys bytea[],
  user_tables int2[], user_rests bytea[], naming_tables int2[], naming_keys bytea[],
  range_tables int2[], range_from bytea[], range_to bytea[], range_limits int4[], known_generation int8)
RETURNS TABLE (n int4, k bytea, v bytea, s int8) LANGUAGE plpgsql STABLE {SETTINGS} AS $$
DECLARE
  user_keys bytea[];
BEGIN
RETURN QUERY SELECT {GENERATION_ROW}, NULL::bytea, NULL::bytea, g.n FROM idsvc.generation g;
RETURN QUERY SELECT {CHANGE_ROW}, int2send(c.t) || c.k, int8send(c.before), c.n FROM idsvc.changes c WHERE c.n > known_generation ORDER BY c.n LIMIT {MOST_CHANGES} + 1;
RETURN QUERY SELECT {CLOCK_ROW}, NULL::bytea, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::int8;
IF cardinality(user_tables) > 0 THEN
{keys_of_users}  RETURN QUERY SELECT {USER_KEY_ROW}, p.k, NULL::bytea, p.n FROM unnest(user_keys) WITH ORDINALITY p(k, n) WHERE p.k IS NOT NULL;
  point_tables := point_tables || user_tables;
  point_keys := point_keys || user_keys;
END IF;
{points}
FOR i IN 1 .. cardinality(range_tables) LOOP
CASE range_tables[i]
{ranges}
END CASE;
END LOOP;
END $$;
",
        function = function("get_v2")
    )
}

/// Finds the keys of the rows of users whom rows of this table name.
fn key_of_user(naming: TableId) -> String {
    let (index, name, mark) = (naming.index(), naming.name(), naming.user_mark());
    let hex = mark
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    format!(
        "IF {index} = ANY(naming_tables) THEN
  user_keys := ARRAY(SELECT coalesce(p.found, (SELECT substring(x.v FROM nullif(position('\\x{hex}'::bytea IN x.v), 0) + {} FOR 16) || p.rest FROM idsvc.{name} x WHERE x.k = p.k AND p.t = {index}))
    FROM unnest(naming_tables, naming_keys, user_rests, user_keys) WITH ORDINALITY p(t, k, rest, found, n) ORDER BY p.n);
END IF;
",
        mark.len()
    )
}

fn commit() -> String {
    let points = for_each_table("read_tables", |table| {
        format!(
            "failed := failed || ARRAY(SELECT p.m FROM unnest(read_members, read_tables, read_keys, read_stamps) p(m, t, k, s) LEFT JOIN LATERAL (SELECT x.s FROM idsvc.{} x WHERE x.k = p.k OFFSET 0) r ON true WHERE p.t = {} AND r.s IS DISTINCT FROM p.s);",
            table.name(),
            table.index()
        )
    });
    let ranges = branches(|table| {
        format!(
            "IF range_to[i] IS NULL THEN
  SELECT string_agg(int8send(q.s) || int4send(length(q.k)) || q.k, '' ORDER BY q.k) INTO visited FROM (SELECT r.k, r.s FROM idsvc.{name} r WHERE r.k >= range_from[i] ORDER BY r.k LIMIT range_limits[i]) q;
ELSE
  SELECT string_agg(int8send(q.s) || int4send(length(q.k)) || q.k, '' ORDER BY q.k) INTO visited FROM (SELECT r.k, r.s FROM idsvc.{name} r WHERE r.k >= range_from[i] AND r.k < range_to[i] ORDER BY r.k LIMIT range_limits[i]) q;
END IF;",
            name = table.name()
        )
    });
    let writes = for_each_table("write_tables", |table| {
        format!(
            "INSERT INTO idsvc.{name} (k, v, s) SELECT w.k, w.v, stamp FROM unnest(write_members, write_tables, write_keys, write_values) w(m, t, k, v) WHERE w.t = {index} AND w.v IS NOT NULL AND w.m <> ALL (failed) ON CONFLICT (k) DO UPDATE SET v = excluded.v, s = excluded.s;
IF has_removals THEN
  DELETE FROM idsvc.{name} r USING unnest(write_members, write_tables, write_keys, write_values) w(m, t, k, v) WHERE w.t = {index} AND w.v IS NULL AND w.m <> ALL (failed) AND r.k = w.k;
END IF;",
            name = table.name(),
            index = table.index()
        )
    });
    let catalog: Vec<_> = tables::all()
        .filter(|table| table.is_in_catalog())
        .map(|table| table.index().to_string())
        .collect();
    let catalog = catalog.join(", ");
    format!(
        "CREATE OR REPLACE FUNCTION {function}(
  batch bytea, is_sent_again bool, lock_hashes int8[], lock_is_exclusive bool[],
  generations int8[], used_members int2[], used_clients bytea[],
  read_members int2[], read_tables int2[], read_keys bytea[], read_stamps int8[],
  range_members int2[], range_tables int2[], range_from bytea[], range_to bytea[], range_limits int4[], range_rows bytea[],
  write_members int2[], write_tables int2[], write_keys bytea[], write_values bytea[])
RETURNS int2[] LANGUAGE plpgsql VOLATILE {SETTINGS} AS $$
DECLARE
  failed int2[] := '{{}}';
  outdated int2[] := '{{}}';
  newest int8;
  stamp int8;
  visited bytea;
  has_removals bool := array_position(write_values, NULL) IS NOT NULL;
BEGIN
IF current_setting('transaction_isolation') <> 'read committed' THEN
  RAISE EXCEPTION 'idsvc commits in read committed transactions only' USING ERRCODE = 'invalid_transaction_state';
END IF;
-- One function scan returns the elements in their order, and the locks are taken row by row.
PERFORM CASE WHEN l.is_exclusive THEN pg_advisory_xact_lock(l.hash) ELSE pg_advisory_xact_lock_shared(l.hash) END
  FROM unnest(lock_hashes, lock_is_exclusive) l(hash, is_exclusive);
IF is_sent_again THEN
  -- A batch that is stored is written again, so that this transaction waits for the standby too.
  UPDATE idsvc.batches b SET at = b.at WHERE b.id = batch RETURNING b.failed INTO failed;
  IF FOUND THEN RETURN failed; END IF;
END IF;
failed := '{{}}';
SELECT g.n INTO newest FROM idsvc.generation g;
IF newest <> ANY (generations) THEN
  outdated := ARRAY(SELECT (m.m - 1)::int2 FROM unnest(generations) WITH ORDINALITY m(n, m) WHERE m.n <> newest AND (
    m.n > newest
    OR NOT EXISTS (SELECT FROM idsvc.changes c WHERE c.n = newest)
    OR EXISTS (SELECT FROM idsvc.changes c WHERE c.n > m.n AND c.before <> m.n AND NOT EXISTS (SELECT FROM idsvc.changes p WHERE p.n = c.before AND p.n > m.n))
    OR EXISTS (SELECT FROM idsvc.changes c WHERE c.n > m.n AND (c.t <> {clients} OR EXISTS (
      SELECT FROM unnest(used_members, used_clients) u(m, k) WHERE u.m = m.m - 1 AND (u.k IS NULL OR u.k = c.k))))));
  failed := outdated;
END IF;
{points}
FOR i IN 1 .. cardinality(range_tables) LOOP
CASE range_tables[i]
{ranges}
END CASE;
IF coalesce(visited, '') <> range_rows[i] THEN failed := failed || range_members[i]; END IF;
END LOOP;
stamp := nextval('idsvc.stamps');
{writes}
IF EXISTS (SELECT FROM unnest(write_members, write_tables) w(m, t) WHERE w.t IN ({catalog}) AND w.m <> ALL (failed)) THEN
  SELECT g.n INTO newest FROM idsvc.generation g FOR UPDATE;
  {COUNT_GENERATION};
  INSERT INTO idsvc.changes (n, t, k, before) SELECT g.n, w.t, w.k, newest FROM idsvc.generation g, unnest(write_members, write_tables, write_keys) w(m, t, k) WHERE w.t IN ({catalog}) AND w.m <> ALL (failed);
END IF;
-- A member whose catalog is outdated is in the list once more, below zero.
failed := failed || ARRAY(SELECT (-1 - m)::int2 FROM unnest(outdated) m);
INSERT INTO idsvc.batches (id, failed) VALUES (batch, failed);
RETURN failed;
END $$;
",
        clients = CLIENTS.id().index(),
        function = function("commit_v2")
    )
}
