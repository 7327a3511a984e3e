//! `dormouse reference`: the configuration reference, made from the definitions that parse it.

use dormouse_node::config::file::File;
use schemars::Schema;
use serde_json::Value;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Prints the page.
pub(crate) fn run() -> ExitCode {
    print!("{}", page());
    ExitCode::SUCCESS
}

/// `docs/configuration.md`.
pub(crate) fn page() -> String {
    let schema: Schema = schemars::schema_for!(File);
    let root = schema.as_value();
    let defaults = serde_json::to_value(File::default()).unwrap_or_default();
    let mut out = String::from(
        "# Configuration\n\n`/etc/dormouse/dormouse.toml`, or the file that `dormoused --config` names. This page is made from the definitions \
         that parse it\n(`dormouse reference`). Unknown keys are errors. `dormoused --check` reads a file and says what is wrong with it.\n\n\
         Times are whole seconds unless the name says otherwise.\n",
    );
    section(&mut out, root, "daemon", definition(root, "Daemon"), defaults.get("daemon"));
    let half_open = defaults.pointer("/daemon/half_open");
    section(&mut out, root, "daemon.half_open", definition(root, "HalfOpen"), half_open);
    section(&mut out, root, "audit", definition(root, "Audit"), defaults.get("audit"));
    section(&mut out, root, "sleep", definition(root, "Sleep"), defaults.get("sleep"));
    section(&mut out, root, "standin", definition(root, "StandIn"), defaults.get("standin"));
    let radius = serde_json::to_value(dormouse_node::config::file::Radius::default()).ok();
    section(&mut out, root, "radius", definition(root, "Radius"), radius.as_ref());
    section(&mut out, root, "cluster", definition(root, "Cluster"), None);
    section(&mut out, root, "[radius.servers]", definition(root, "RadiusServer"), None);
    section(&mut out, root, "router", definition(root, "Router"), None);
    let connection = definition(root, "Connection");
    section(&mut out, root, "connection.NAME", connection, None);
    for (key, name) in [
        ("local", "LocalAuth"),
        ("remote", "RemoteAuth"),
        ("ppk", "Ppk"),
        ("ike", "Ike"),
        ("child", "Child"),
        ("resumption", "Resumption"),
        ("wake", "Wake"),
        ("pool", "Pool"),
    ] {
        let default = connection.and_then(|c| c.pointer(&format!("/properties/{key}/default")));
        section(&mut out, root, &format!("connection.NAME.{key}"), definition(root, name), default);
    }
    let choose = connection.and_then(|c| c.pointer("/properties/child/default/choose"));
    section(&mut out, root, "connection.NAME.child.choose", definition(root, "Choose"), choose);
    let zones = connection.and_then(|c| c.pointer("/properties/child/default/zones"));
    section(&mut out, root, "connection.NAME.child.zones", definition(root, "Zones"), zones);
    section(&mut out, root, "connection.NAME.renewals", definition(root, "Renewals"), None);
    section(&mut out, root, "connection.NAME.keys", definition(root, "Keys"), None);
    section(&mut out, root, "connection.NAME.hip", definition(root, "Hip"), None);
    for key in ["rendezvous_server", "relay_server"] {
        // One table for both; what each is stands at its key.
        let mut registrar = definition(root, "HipRegistrar").cloned().unwrap_or_default();
        let of_key = root.pointer(&format!("/$defs/Hip/properties/{key}/description"));
        registrar["description"] = of_key.cloned().unwrap_or_default();
        section(&mut out, root, &format!("connection.NAME.hip.{key}"), Some(&registrar), None);
    }
    let puzzle = root.pointer("/$defs/Hip/properties/puzzle/default");
    section(&mut out, root, "connection.NAME.hip.puzzle", definition(root, "HipPuzzle"), puzzle);
    section(&mut out, root, "[connection.NAME.hip.identities]", definition(root, "HipIdentity"), None);
    section(&mut out, root, "[connection.NAME.hip.peers]", definition(root, "HipPeer"), None);
    section(&mut out, root, "[connection.NAME.ppk.keys]", definition(root, "PpkKey"), None);
    section(&mut out, root, "[connection.NAME.peers]", definition(root, "Peer"), None);
    out
}

fn definition<'a>(root: &'a Value, name: &str) -> Option<&'a Value> {
    root.pointer(&format!("/$defs/{name}"))
}

fn section(out: &mut String, root: &Value, title: &str, schema: Option<&Value>, defaults: Option<&Value>) {
    let Some(schema) = schema else { return };
    let _ = write!(out, "\n## `[{title}]`\n\n");
    if let Some(text) = schema.get("description").and_then(Value::as_str) {
        let _ = writeln!(out, "{}\n", text.replace('\n', " "));
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let _ = writeln!(out, "| key | type | default | meaning |\n|---|---|---|---|");
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let kind = kind(root, property);
        if kind == "table" {
            continue;
        }
        let default = match defaults.and_then(|d| d.get(key)).or_else(|| property.get("default")) {
            _ if required.contains(&key.as_str()) => "required".to_owned(),
            Some(Value::Null) | None => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let text = property.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
        let _ = writeln!(out, "| `{key}` | {kind} | {default} | {} |", text.replace('|', "\\|"));
    }
}

/// A property's type in the words of TOML.
fn kind(root: &Value, property: &Value) -> String {
    let target =
        property.get("$ref").and_then(Value::as_str).and_then(|r| root.pointer(r.trim_start_matches('#')));
    let schema = target.unwrap_or(property);
    let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(branches) = branches {
        let words: Vec<String> = branches
            .iter()
            .filter(|b| b.get("type").and_then(Value::as_str) != Some("null"))
            .map(|b| b.get("const").map_or_else(|| kind(root, b), |c| format!("`{c}`")))
            .collect();
        return words.join(" or ");
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or ");
    }
    let name = match schema.get("type") {
        Some(Value::Array(list)) => {
            list.iter().filter_map(Value::as_str).find(|t| *t != "null").unwrap_or_default()
        }
        Some(Value::String(name)) => name,
        _ => "",
    };
    match name {
        "array" => format!("list of {}", schema.get("items").map(|i| kind(root, i)).unwrap_or_default()),
        "object" => "table".into(),
        "integer" => "number".into(),
        "boolean" => "true or false".into(),
        _ => "text".into(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_up_to_date() {
        let committed = include_str!("../../../docs/configuration.md");
        assert_eq!(super::page(), committed, "run `make docs`");
    }
}
