//! The tables, by version. Owns what is in the schema `dormouse` and what a gateway's role may do with it; must never change a version
//! that was released: what comes later is a version of its own.

/// Version of the tables that this release works with.
pub const SCHEMA: i32 = 7;
/// Most gateways of one cluster.
pub const SLOTS_MOST: u8 = 64;
/// The role that all gateways' roles are members of.
pub(crate) const GROUP: &str = "dormouse_gateway";

/// `MIGRATIONS[n]` makes version n + 1 out of version n.
pub(crate) const MIGRATIONS: [&str; SCHEMA as usize] =
    [VERSION_1, HANDOVERS, USERS_AND_NUMBERS, LOADS, SESSIONS, IKE_SAS, SETTINGS];

const VERSION_1: &str = "
create schema dormouse;
create table dormouse.cluster (
    one boolean primary key default true check (one),
    schema integer not null,
    slots smallint not null check (slots between 1 and 64),
    system_identifier bigint not null,
    timeline bigint not null,
    incarnation bigint not null check (incarnation > 0)
);
comment on column dormouse.cluster.timeline is 'of the server when a gateway last looked: another one means that what was committed may be lost';
comment on column dormouse.cluster.incarnation is 'how often the lineages were emptied, and one';
create table dormouse.gateway (
    name text primary key check (name ~ '^[a-z0-9-]{1,32}$'),
    slot smallint not null unique check (slot >= 0),
    address text not null check (length(address) <= 256),
    version text not null check (length(version) <= 64),
    seen bigint not null default 0,
    clock bigint not null default 0,
    beats bigint not null,
    sessions bigint not null default 0,
    sleepers bigint not null default 0
);
comment on column dormouse.gateway.seen is 'the last heartbeat, by the clock of the database';
comment on column dormouse.gateway.clock is 'seconds that the clock of the gateway was ahead of it then';
create table dormouse.lineage (
    id bytea primary key check (length(id) = 16),
    holder bytea not null check (length(holder) = 32),
    tip bytea not null check (length(tip) = 16),
    gateway text not null,
    ends bigint not null
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
create index lineage_by_holder on dormouse.lineage (holder);
create index lineage_by_end on dormouse.lineage (ends);
create table dormouse.lease (
    connection text not null,
    id_type smallint not null,
    id_data bytea not null,
    device bigint not null,
    holder bytea not null check (length(holder) = 32),
    v4 inet unique check (family(v4) = 4 and masklen(v4) = 32),
    v6 inet unique check (family(v6) = 6 and masklen(v6) = 128),
    used bigint not null,
    gateway text not null,
    primary key (connection, id_type, id_data, device)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
create table dormouse.denial (
    whom text primary key check (octet_length(whom) <= 2048),
    since bigint not null
);
create table dormouse.ticket_key (
    day integer primary key check (day >= 0),
    id bytea not null unique check (length(id) = 8),
    seal_from bigint not null,
    seal_until bigint not null,
    open_until bigint not null,
    wrapped bytea not null check (length(wrapped) = 60)
);
comment on column dormouse.ticket_key.wrapped is 'nonce and AES-256-GCM under the cluster key, which only gateways have';
create table dormouse.orders (
    seq bigint generated always as identity primary key,
    gateway text not null references dormouse.gateway (name) on delete cascade,
    lineage bytea not null check (length(lineage) = 16)
);
comment on table dormouse.orders is 'lineages that a gateway no longer has, and has not let go of yet';
create index orders_by_gateway on dormouse.orders (gateway, seq);
";

/// Devices that go from one gateway to another.
const HANDOVERS: &str = "
alter table dormouse.gateway add column draining boolean not null default false;
create table dormouse.handover (
    seq bigint generated always as identity primary key,
    gateway text not null references dormouse.gateway (name) on delete cascade,
    lineage bytea not null check (length(lineage) = 16),
    ends bigint not null,
    sealed bytea not null check (length(sealed) between 28 and 4194332)
);
comment on table dormouse.handover is 'what a gateway is told of a device that is there';
comment on column dormouse.handover.sealed is 'nonce and AES-256-GCM under a key made of the cluster key';
create index handover_by_gateway on dormouse.handover (gateway, seq);
create index handover_by_lineage on dormouse.handover (lineage);
create index handover_by_end on dormouse.handover (ends);
";

/// Users of all gateways, and what gateways say of themselves besides.
const USERS_AND_NUMBERS: &str = "
create table dormouse.user_entry (
    kind text not null check (kind in ('password', 'record')),
    connection text not null check (octet_length(connection) <= 256),
    name text not null check (octet_length(name) between 1 and 1024),
    version bigint not null check (version > 0),
    changed bigint not null,
    content bytea check (octet_length(content) <= 65536),
    primary key (kind, connection, name)
);
comment on column dormouse.user_entry.version is 'how often it was changed: who changes it says which version he has seen';
comment on column dormouse.user_entry.content is 'null: removed. Of a password nonce and AES-256-GCM under a key made of the cluster key, which only gateways have';
alter table dormouse.gateway
    add spent bigint not null default 0 check (spent >= 0),
    add round_trip bigint check (round_trip >= 0);
comment on column dormouse.gateway.spent is 'tickets that it took in the minute before the heartbeat';
comment on column dormouse.gateway.round_trip is 'microseconds from it to the database and back, as it measured them then';
";

/// How loaded gateways are, and what they have learned of it.
const LOADS: &str = "
alter table dormouse.gateway add session_time bigint check (session_time >= 0);
comment on column dormouse.gateway.session_time is 'microseconds that a session takes there, as it measured; null: it does not know yet';
create table dormouse.load_history (
    gateway text primary key references dormouse.gateway (name) on delete cascade,
    written bigint not null,
    content bytea not null check (octet_length(content) <= 4096)
);
comment on table dormouse.load_history is 'what each gateway has learned about latency and load, for one that has lost its own';
";

/// Sessions that are counted over all gateways, and lineages that end before their gateway has written them down.
const SESSIONS: &str = "
create table dormouse.session (
    lineage bytea primary key check (length(lineage) = 16),
    holder bytea not null check (length(holder) = 32),
    gateway text not null references dormouse.gateway (name) on delete cascade,
    came inet,
    began bigint not null,
    surplus boolean not null default false
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
comment on table dormouse.session is 'of identities whose connection says unique = keep or never: the sessions that gateways have now';
comment on column dormouse.session.came is 'keep: where the client is';
comment on column dormouse.session.surplus is 'more than the identity may have: the gateway ends it';
create index session_by_holder on dormouse.session (holder);
create index session_by_gateway on dormouse.session (gateway);
create index session_surplus on dormouse.session (gateway) where surplus;
create table dormouse.ended (
    holder bytea not null check (length(holder) = 32),
    lineage bytea not null check (length(lineage) = 16),
    until bigint not null,
    primary key (holder, lineage)
);
comment on table dormouse.ended is 'lineages that a client has named as its former one, and that no gateway had written down';
create index ended_by_end on dormouse.ended (until);
";

/// IKE SAs that outlive their gateway.
const IKE_SAS: &str = "
create table dormouse.ike_sa (
    lineage bytea primary key check (length(lineage) = 16),
    gateway text not null references dormouse.gateway (name) on delete cascade,
    owners integer not null check (owners between 0 and 65535),
    spi bytea not null check (length(spi) = 8),
    esp bytea not null check (length(esp) between 4 and 1020 and length(esp) % 4 = 0),
    local inet not null,
    ends bigint not null,
    sealed bytea not null check (length(sealed) between 28 and 65536)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
comment on table dormouse.ike_sa is 'with cluster.takeover: what another gateway needs to go on with an IKE SA';
comment on column dormouse.ike_sa.owners is 'how many gateways have had it before: each has IVs and message ids of its own';
comment on column dormouse.ike_sa.local is 'the address of the gateway at which its peer reaches it';
comment on column dormouse.ike_sa.sealed is 'nonce and AES-256-GCM under a key made of the cluster key';
create index ike_sa_by_gateway on dormouse.ike_sa (gateway, lineage);
create index ike_sa_by_end on dormouse.ike_sa (ends);
";

/// What must be the same at all gateways, as each has it.
const SETTINGS: &str = "
alter table dormouse.gateway add settings text not null default '' check (octet_length(settings) <= 65536);
comment on column dormouse.gateway.settings is 'what must be the same at all gateways, as this one has it, NAME=VALUE by lines: on, off, a number, or a fingerprint under a key made of the cluster key; empty: an earlier release';
";

/// What a gateway may do, and nothing else. Given again at each `init`, so that a later release's need is met.
pub(crate) const GRANTS: &str = "
revoke all on all tables in schema dormouse from dormouse_gateway;
grant usage on schema dormouse to dormouse_gateway;
grant select, update (system_identifier, timeline, incarnation) on dormouse.cluster to dormouse_gateway;
grant select, insert, update on dormouse.gateway to dormouse_gateway;
grant select, insert, update, delete on dormouse.lineage, dormouse.lease, dormouse.ticket_key, dormouse.session, dormouse.ike_sa to dormouse_gateway;
grant select, insert, update on dormouse.user_entry, dormouse.load_history to dormouse_gateway;
grant select, insert, delete on dormouse.denial, dormouse.orders, dormouse.ended to dormouse_gateway;
grant select, insert, delete, update (gateway) on dormouse.handover to dormouse_gateway;
grant execute on function pg_catalog.pg_control_system() to dormouse_gateway;
";
