//! How `dormouse top` looks. Owns the picture; it is made of the model alone, for a window of any size.

use super::model::{Column, Model, Row};
use super::rows::clean;
use dormouse_control::{Gateway, SleepState, SleepStatus, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

/// What the foot says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foot {
    /// The keys.
    Keys,
    /// The filter, which is being written.
    Filter,
}

/// Columns that give way first where the window is narrow, with the least width at which they are shown.
const WIDE: [(Column, u16); 2] = [(Column::Bytes, 92), (Column::Quiet, 102)];

/// Draws it all; returns how many rows fit.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, foot: Foot, colour: bool) -> usize {
    let head = head(model, colour);
    let height = u16::try_from(head.len()).unwrap_or(u16::MAX);
    let areas = Layout::vertical([Constraint::Length(height), Constraint::Min(2), Constraint::Length(1)])
        .split(frame.area());
    let [top, middle, bottom] = [0, 1, 2].map(|i| areas.get(i).copied().unwrap_or(Rect::ZERO));
    frame.render_widget(Paragraph::new(head), top);
    let fits = usize::from(middle.height.saturating_sub(1));
    frame.render_widget(table(model, fits, middle.width, colour), middle);
    frame.render_widget(Paragraph::new(self::foot(model, foot, fits)), bottom);
    fits
}

fn head(model: &Model, colour: bool) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let Some(status) = &model.status else {
        lines.push(Line::from(" dormouse top: waiting for the daemon"));
        return lines;
    };
    let daemon = &status.daemon;
    let title = format!(
        " dormouse {} on {}, up {}",
        clean(&daemon.release),
        clean(&daemon.interface),
        time(daemon.uptime_seconds)
    );
    lines.push(Line::from(title).style(Style::new().add_modifier(Modifier::BOLD)));
    if let Some(trouble) = &model.trouble {
        lines.push(Line::from(format!(" {}", clean(trouble))).style(mark(colour, Color::Red)));
    }
    let ((received, sent), asleep) = model.sums();
    if let Some(gateway) = &status.gateway {
        lines.extend(of_gateway(gateway, asleep));
    }
    if let Some(sleep) = &status.sleep {
        lines.extend(of_sleep(sleep, colour));
    }
    lines.push(Line::from(format!(" traffic  in {}B/s, out {}B/s", short(received), short(sent))));
    if let Some(line) = in_clear(status) {
        lines.push(Line::from(line).style(mark(colour, Color::Red)));
    }
    lines
}

fn of_gateway(it: &Gateway, asleep: usize) -> Vec<Line<'static>> {
    let mut line = format!(
        " gateway  {} sessions, {asleep} asleep ({} without a session), {} half open",
        it.sessions_total, it.absent_total, it.half_open
    );
    if it.refused > 0 {
        line += &format!(", {} newcomers refused", it.refused);
    }
    vec![Line::from(line)]
}

fn of_sleep(it: &SleepStatus, colour: bool) -> Vec<Line<'static>> {
    let state = match it.state {
        SleepState::Asleep => mark(colour, Color::Green),
        SleepState::Preparing | SleepState::Waking => mark(colour, Color::Yellow),
        SleepState::Awake => Style::new(),
    };
    let since = it.asleep_seconds.map(|s| format!(" for {}", time(s))).unwrap_or_default();
    let radio = Line::from(vec![
        Span::from(" radio    "),
        Span::styled(format!("{}{since}", it.state.name()), state.add_modifier(Modifier::BOLD)),
        Span::from(format!(
            ", mode {}, {} sleeps, pays after {}",
            it.mode.name(),
            it.sleeps,
            time(it.break_even_seconds)
        )),
    ]);
    let energy = &it.energy;
    let mut lines = vec![
        radio,
        Line::from(format!(
            " energy   {} J used, {} J saved ({})",
            energy.used_joules.round(),
            energy.saved_joules.round(),
            clean(&energy.source)
        )),
    ];
    if let Some(wake) = it.wakes.first() {
        let by = wake.rung.map(|rung| format!(" by {}", rung.name())).unwrap_or_default();
        let took = wake.took_ms.map(|ms| format!(", in {ms} ms{by}")).unwrap_or_default();
        let what = wake.flow.as_deref().unwrap_or(&wake.cause);
        lines.push(Line::from(format!(
            " woken    {} ago by {}, after {}{took}",
            time(wake.ago_seconds),
            clean(what),
            time(wake.slept_seconds)
        )));
    }
    lines
}

fn in_clear(status: &Status) -> Option<String> {
    let first = status.in_clear.iter().find(|it| !it.intended)?;
    Some(format!(" in clear {}: {}", clean(&first.connection), clean(&first.what)))
}

fn table(model: &Model, fits: usize, width: u16, colour: bool) -> Table<'static> {
    let columns: Vec<Column> = Column::ALL
        .into_iter()
        .filter(|c| WIDE.iter().all(|(wide, least)| wide != c || width >= *least))
        .collect();
    let titles = columns.iter().map(|column| {
        let arrow = if model.reversed { "▲" } else { "▼" };
        let title = if *column == model.sorted_by {
            format!("{}{arrow}", column.title())
        } else {
            column.title().into()
        };
        Cell::from(align(*column, title))
    });
    let header = TableRow::new(titles).style(Style::new().add_modifier(Modifier::REVERSED));
    let rows: Vec<TableRow<'static>> = model
        .window(fits)
        .map(|row| {
            TableRow::new(columns.iter().map(|c| Cell::from(cell(*c, row))).collect::<Vec<_>>())
                .style(tone(row, colour))
        })
        .collect();
    let widths = columns.iter().map(|column| match column {
        Column::Who => Constraint::Fill(1),
        Column::Connection => Constraint::Length(12),
        Column::State => Constraint::Length(10),
        Column::Address => Constraint::Length(16),
        Column::In | Column::Out | Column::Bytes => Constraint::Length(8),
        Column::Quiet => Constraint::Length(7),
    });
    Table::new(rows, widths).header(header).column_spacing(1)
}

fn cell(column: Column, row: &Row) -> Line<'static> {
    let text = match column {
        Column::Who => row.who.clone(),
        Column::Connection => row.connection.clone(),
        Column::State if row.waiting > 0 => format!("{} +{}", row.state, row.waiting),
        Column::State => row.state.clone(),
        Column::Address => row.address.clone(),
        Column::In => short(row.rate.0),
        Column::Out => short(row.rate.1),
        Column::Bytes => short(row.bytes.0.saturating_add(row.bytes.1) as f64),
        Column::Quiet => row.quiet.map(time).unwrap_or_default(),
    };
    align(column, text)
}

/// Numbers stand to the right.
fn align(column: Column, text: String) -> Line<'static> {
    match column {
        Column::In | Column::Out | Column::Bytes | Column::Quiet => Line::from(text).right_aligned(),
        _ => Line::from(text),
    }
}

fn tone(row: &Row, colour: bool) -> Style {
    match row.state.as_str() {
        super::rows::ASLEEP => Style::new().add_modifier(Modifier::DIM),
        "waiting" | "offline" => mark(colour, Color::Yellow),
        _ => Style::new(),
    }
}

fn mark(colour: bool, to: Color) -> Style {
    if colour { Style::new().fg(to) } else { Style::new() }
}

fn foot(model: &Model, foot: Foot, fits: usize) -> Line<'static> {
    let (shown, all) = model.counts();
    let line = match foot {
        Foot::Filter => format!(" filter: {}_   Enter keeps it, Esc takes it back", model.filter),
        Foot::Keys => {
            let last = shown.min(model.first + fits);
            let mut line = format!(" {}-{last} of {shown}", last.min(model.first + 1));
            if shown != all {
                line += &format!(" (of {all}, filter \"{}\")", model.filter);
            }
            if let Some(come) = model.coming {
                line += &format!(", {come} looked at");
            }
            line + "  q quit  / filter  < > sort  r reverse  ↑↓ PgUp PgDn"
        }
    };
    Line::from(line).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// A time in one unit, or two.
pub(crate) fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3_600..86_400 => format!("{}h{:02}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// A quantity in at most six characters, and its unit's prefix.
pub(crate) fn short(n: f64) -> String {
    const PREFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (mut n, mut prefix) = (n.max(0.0), 0);
    while n >= 999.5 && prefix + 1 < PREFIXES.len() {
        n /= 1_000.0;
        prefix += 1;
    }
    let digits = if prefix == 0 || n >= 99.95 { 0 } else { 1 };
    format!("{n:.digits$} {}", PREFIXES.get(prefix).copied().unwrap_or_default())
}
