//! The tables and functions in the database.
//!
//! A table has a key, a value and the stamp of the commit that wrote the row last. All rows are read by `get_v1` and
//! written by `commit_v1`. Nodes need no right but to execute these functions, and no other role has it.
//!
//! Nodes of two releases run side by side during an upgrade. So a function that changes gets a new name, such as `get_v2`.
//! The names of these two also end with the number of the newest table, such as `get_v1_27`, so a release with another
//! table has functions of its own. A node whose functions are missing does not start.

use std::fmt::Write;
use std::sync::LazyLock;

use crate::store::engine::TableId;
use crate::store::schema::META;
use crate::store::tables;

/// Reads rows and ranges. See [`super::fetch`].
pub(super) static GET: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT n, k, v, s FROM {}($1, $2, $3, $4, $5, $6)",
        function("get_v1")
    )
});

/// Commits a batch of transactions. See [`super::commit`].
pub(super) static COMMIT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
        function("commit_v1")
    )
});

/// Forgets the results of old batches. This does not wait for the standby.
pub(super) const FORGET_BATCHES: &str =
    "SELECT set_config('synchronous_commit', 'off', true), idsvc.forget_batches_v1()";

/// `n` of the row of `get_v1` that has the generation of the catalog, in `s`.
pub(super) const GENERATION_ROW: i32 = -1;
/// `n` of the row of `get_v1` that has the time of the database, in microseconds since the epoch, in `s`.
pub(super) const CLOCK_ROW: i32 = -2;

/// One process at a time sets up a database. The lock ends with the transaction.
pub(super) const SETUP_LOCK: &str = "SELECT pg_advisory_xact_lock(7236274921)";

/// A text that differs if a table or a function is added or changed.
pub(super) const DEFINITIONS: &str = "SELECT concat(
  (SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('idsvc')),
  (SELECT md5(string_agg(prosrc, '' ORDER BY proname)) FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('idsvc')))";

/// Gives the catalog another generation. It is the time, so that no database has one that another one had.
pub(super) const COUNT_GENERATION: &str = "UPDATE idsvc.generation SET n = greatest(n + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)";

/// The settings under which each function runs. An index is used even if the table was small when the plan was made.
const SETTINGS: &str = "SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SECURITY DEFINER";

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
    let _ = writeln!(
        sql,
        "CREATE OR REPLACE FUNCTION idsvc.forget_batches_v1() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp SECURITY DEFINER
AS $$ DELETE FROM idsvc.batches WHERE at < now() - interval '10 minutes' $$;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA idsvc FROM PUBLIC;"
    );
    sql
}

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
  range_tables int2[], range_from bytea[], range_to bytea[], range_limits int4[])
RETURNS TABLE (n int4, k bytea, v bytea, s int8) LANGUAGE plpgsql STABLE {SETTINGS} AS $$
BEGIN
RETURN QUERY SELECT {GENERATION_ROW}, NULL::bytea, NULL::bytea, g.n FROM idsvc.generation g;
RETURN QUERY SELECT {CLOCK_ROW}, NULL::bytea, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::int8;
{points}
FOR i IN 1 .. cardinality(range_tables) LOOP
CASE range_tables[i]
{ranges}
END CASE;
END LOOP;
END $$;
",
        function = function("get_v1")
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
    format!(
        "CREATE OR REPLACE FUNCTION {function}(
  batch bytea, is_sent_again bool, catalog_generation int8, catalog_member int2, lock_hashes int8[], lock_is_exclusive bool[],
  read_members int2[], read_tables int2[], read_keys bytea[], read_stamps int8[],
  range_members int2[], range_tables int2[], range_from bytea[], range_to bytea[], range_limits int4[], range_rows bytea[],
  write_members int2[], write_tables int2[], write_keys bytea[], write_values bytea[])
RETURNS int2[] LANGUAGE plpgsql VOLATILE {SETTINGS} AS $$
DECLARE
  failed int2[] := '{{}}';
  stamp int8;
  visited bytea;
  has_removals bool := array_position(write_values, NULL) IS NOT NULL;
BEGIN
IF current_setting('transaction_isolation') <> 'read committed' THEN
  RAISE EXCEPTION 'idsvc commits in read committed transactions only' USING ERRCODE = 'invalid_transaction_state';
END IF;
FOR i IN 1 .. cardinality(lock_hashes) LOOP
  IF lock_is_exclusive[i] THEN PERFORM pg_advisory_xact_lock(lock_hashes[i]);
  ELSE PERFORM pg_advisory_xact_lock_shared(lock_hashes[i]);
  END IF;
END LOOP;
IF is_sent_again THEN
  -- A batch that is stored is written again, so that this transaction waits for the standby too.
  UPDATE idsvc.batches b SET at = b.at WHERE b.id = batch RETURNING b.failed INTO failed;
  IF FOUND THEN RETURN failed; END IF;
END IF;
PERFORM FROM idsvc.generation g WHERE g.n = catalog_generation;
IF NOT FOUND THEN RETURN NULL; END IF;
failed := '{{}}';
{points}
FOR i IN 1 .. cardinality(range_tables) LOOP
CASE range_tables[i]
{ranges}
END CASE;
IF coalesce(visited, '') <> range_rows[i] THEN failed := failed || range_members[i]; END IF;
END LOOP;
stamp := nextval('idsvc.stamps');
{writes}
IF catalog_member IS NOT NULL AND catalog_member <> ALL (failed) THEN
  {COUNT_GENERATION};
END IF;
INSERT INTO idsvc.batches (id, failed) VALUES (batch, failed);
RETURN failed;
END $$;
",
        function = function("commit_v1")
    )
}
