//! The page of the policy and its constants: what it states of each is what ships, and its tables, which an example of this crate makes, have
//! a row for each.

use dormouse_energy::schedule::Tuning;

const PAGE: &str = include_str!("../../../docs/policy.md");

/// Each constant with its value, as it ships.
fn shipped() -> Vec<(String, f64)> {
    let shown = format!("{:?}", Tuning::SHIPPED);
    let fields = shown.trim_start_matches("Tuning {").trim_end_matches('}').split(", ");
    let field = |field: &str| {
        let (name, value) = field.split_once(": ").expect("a name and a value");
        let value: f64 = value.trim().parse().expect("a number");
        (name.trim().to_owned(), value)
    };
    fields.map(field).collect()
}

/// What a cell states, without its unit: `8 %`, `1 s`, `6 (7 with the sleep itself)`.
fn number(cell: &str) -> f64 {
    let number: f64 = cell.split(' ').next().and_then(|n| n.parse().ok()).expect(cell);
    if cell.split(' ').nth(1) == Some("%") { number / 100.0 } else { number }
}

#[test]
fn each_constant_has_the_value_that_the_page_states() {
    let (_, reasons) = PAGE.split_once("### Why each constant is what it is").expect("the section");
    let mut stated = Vec::new();
    for line in reasons.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let names: Vec<&str> = cells[0].split(", ").map(|name| name.trim_matches('`')).collect();
        let values: Vec<&str> =
            if names.len() == 1 { vec![cells[1]] } else { cells[1].split(", ").collect() };
        assert_eq!(names.len(), values.len(), "{line}");
        stated.extend(names.into_iter().zip(values.into_iter().map(number)));
    }
    let shipped = shipped();
    assert_eq!(stated.len(), shipped.len(), "{stated:?}");
    for (name, value) in shipped {
        let on_page = stated.iter().find(|(n, _)| *n == name).map(|(_, stated)| *stated);
        assert!(on_page.is_some_and(|stated| (stated - value).abs() < 1e-6), "{name}: {value}, {on_page:?}");
    }
}

#[test]
fn both_tables_have_rows_for_each_constant() {
    for rule in ["| Every packet wakes |", "| Only what the client sends wakes |"] {
        let (_, table) = PAGE.split_once(rule).expect(rule);
        let rows: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
        assert!(rows.iter().any(|row| row.starts_with("| as shipped |")), "{rule}");
        for (name, _) in shipped() {
            let of_it = rows.iter().filter(|row| row.contains(&format!("`{name}`"))).count();
            assert_eq!(of_it, 2, "{rule}: rows of {name}");
        }
    }
}
