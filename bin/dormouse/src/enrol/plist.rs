//! Property lists of Apple's, in XML: as much as configuration profiles have. Owns both directions. What is read may be anybody's: its depth and its
//! items are bounded, no entity is known but those of XML itself, and a document type of its own is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Arrays and dictionaries within each other.
const DEEPEST: usize = 16;
/// Most items of a list altogether.
const MOST: usize = 4096;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Plist {
    Dict(Vec<(String, Plist)>),
    Array(Vec<Plist>),
    Text(String),
    Data(Vec<u8>),
    Number(i64),
    Bool(bool),
}

impl Plist {
    /// A dictionary.
    pub(crate) fn dict<const N: usize>(items: [(&str, Self); N]) -> Self {
        Self::Dict(items.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// The value of a key, in a dictionary.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dict(items) = self else { return None };
        items.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text of a key.
    pub(crate) fn str(&self, key: &str) -> Option<&str> {
        if let Some(Self::Text(text)) = self.get(key) { Some(text) } else { None }
    }

    /// Whether a key is set: `1` or `true`.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Self::Bool(true) | Self::Number(1..)))
    }

    /// The whole document.
    pub(crate) fn document(&self) -> String {
        let mut out = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n",
        );
        self.write(0, &mut out);
        out.push_str("</plist>\n");
        out
    }

    fn write(&self, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        let mut line = |text: &str| {
            out.push_str(&indent);
            out.push_str(text);
            out.push('\n');
        };
        match self {
            Self::Text(text) => line(&format!("<string>{}</string>", escaped(text))),
            Self::Data(bytes) => line(&format!("<data>{}</data>", STANDARD.encode(bytes))),
            Self::Number(number) => line(&format!("<integer>{number}</integer>")),
            Self::Bool(true) => line("<true/>"),
            Self::Bool(false) => line("<false/>"),
            Self::Array(items) => {
                line("<array>");
                items.iter().for_each(|item| item.write(depth + 1, out));
                out.push_str(&format!("{indent}</array>\n"));
            }
            Self::Dict(items) => {
                line("<dict>");
                for (key, value) in items {
                    out.push_str(&format!("{indent}  <key>{}</key>\n", escaped(key)));
                    value.write(depth + 1, out);
                }
                out.push_str(&format!("{indent}</dict>\n"));
            }
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong, without what stands in it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        Parser { rest: text.strip_prefix('\u{feff}').unwrap_or(text), items: 0 }.document()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Text between tags, with its entities resolved.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        let (name, after) = after.split_once(';').filter(|(name, _)| name.len() <= 8)?;
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = name.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code)?
            }
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

struct Parser<'a> {
    rest: &'a str,
    items: usize,
}

/// A tag: its name, and whether it closes or is empty.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Tag<'a> {
    Open(&'a str),
    Close(&'a str),
    Empty(&'a str),
}

impl<'a> Parser<'a> {
    fn document(mut self) -> Result<Plist, String> {
        match self.tag()? {
            Tag::Open("plist") => {}
            _ => return Err("no property list".into()),
        }
        let value = self.tag().and_then(|tag| self.value(tag, 0))?;
        let ended = self.tag()? == Tag::Close("plist") && self.rest.trim().is_empty();
        if ended { Ok(value) } else { Err("something follows the property list".into()) }
    }

    /// The next tag; white space, comments and what stands before the list are passed over.
    fn tag(&mut self) -> Result<Tag<'a>, String> {
        loop {
            let rest = self.rest.trim_start();
            let rest = rest.strip_prefix('<').ok_or("text where a tag was expected, or cut off")?;
            let passed = if let Some(comment) = rest.strip_prefix("!--") {
                comment.split_once("-->")
            } else if rest.starts_with("?xml") {
                rest.split_once("?>")
            } else if rest.starts_with("!DOCTYPE") {
                rest.split_once('>').filter(|(inner, _)| !inner.contains('['))
            } else {
                let (inner, after) = rest.split_once('>').ok_or("a tag that does not end")?;
                self.rest = after;
                let name = |inner: &'a str| inner.split_whitespace().next().unwrap_or_default();
                return Ok(match (inner.strip_prefix('/'), inner.strip_suffix('/')) {
                    (Some(closed), _) => Tag::Close(name(closed)),
                    (None, Some(empty)) => Tag::Empty(name(empty)),
                    (None, None) => Tag::Open(name(inner)),
                });
            };
            self.rest = passed.ok_or("a document type of its own, or a comment that does not end")?.1;
        }
    }

    /// What stands up to a closing tag.
    fn inner(&mut self, name: &str) -> Result<String, String> {
        let (text, rest) = self.rest.split_once('<').ok_or("cut off")?;
        self.rest = rest
            .strip_prefix('/')
            .and_then(|rest| rest.strip_prefix(name))
            .and_then(|rest| rest.strip_prefix('>'))
            .ok_or_else(|| format!("a <{name}> that does not end as it should"))?;
        unescaped(text).ok_or_else(|| "an entity that is not known".into())
    }

    fn value(&mut self, tag: Tag<'a>, depth: usize) -> Result<Plist, String> {
        self.items += 1;
        if depth > DEEPEST || self.items > MOST {
            return Err(format!("more than {MOST} items, or {DEEPEST} within each other"));
        }
        match tag {
            Tag::Empty("true") => Ok(Plist::Bool(true)),
            Tag::Empty("false") => Ok(Plist::Bool(false)),
            Tag::Empty("string") => Ok(Plist::text("")),
            Tag::Empty("data") => Ok(Plist::Data(Vec::new())),
            Tag::Empty("array") => Ok(Plist::Array(Vec::new())),
            Tag::Empty("dict") => Ok(Plist::Dict(Vec::new())),
            Tag::Open("string") => Ok(Plist::Text(self.inner("string")?)),
            Tag::Open(name @ ("date" | "real")) => Ok(Plist::Text(self.inner(name)?)),
            Tag::Open("integer") => {
                let text = self.inner("integer")?;
                text.trim().parse().map(Plist::Number).map_err(|_| "an integer that is none".into())
            }
            Tag::Open("data") => {
                let mut text = self.inner("data")?;
                text.retain(|c| !c.is_ascii_whitespace());
                STANDARD.decode(text).map(Plist::Data).map_err(|_| "data that is no base64".into())
            }
            Tag::Open("array") => self.array(depth),
            Tag::Open("dict") => self.dict(depth),
            _ => Err("a tag that property lists do not have, or not here".into()),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Plist, String> {
        let mut items = Vec::new();
        loop {
            match self.tag()? {
                Tag::Close("array") => return Ok(Plist::Array(items)),
                tag => items.push(self.value(tag, depth + 1)?),
            }
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Plist, String> {
        let mut items: Vec<(String, Plist)> = Vec::new();
        loop {
            match self.tag()? {
                Tag::Close("dict") => return Ok(Plist::Dict(items)),
                Tag::Open("key") => {
                    let key = self.inner("key")?;
                    // Which of two would count differs from reader to reader.
                    if items.iter().any(|(name, _)| *name == key) {
                        return Err("a key that is there twice".into());
                    }
                    let tag = self.tag()?;
                    items.push((key, self.value(tag, depth + 1)?));
                }
                _ => return Err("something else than keys in a <dict>".into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Plist {
        Plist::dict([
            ("text", Plist::text("a <b> & \"c\" 'd' ]]> ü")),
            ("none", Plist::text("")),
            ("data", Plist::Data((0..=255).collect())),
            ("number", Plist::Number(-7)),
            ("yes", Plist::Bool(true)),
            ("no", Plist::Bool(false)),
            ("list", Plist::Array(vec![Plist::Array(Vec::new()), Plist::dict([("a", Plist::Number(1))])])),
        ])
    }

    #[test]
    fn what_is_written_is_read() {
        let list = sample();
        assert_eq!(Plist::read(&list.document()).unwrap(), list);
        assert_eq!((list.str("none"), list.is_set("yes"), list.is_set("no")), (Some(""), true, false));
        let text = "<?xml version='1.0'?><!-- a > b --><plist><dict><key>a</key>\n<data>\n\tAAEC\n</data>\
                    <key>b</key><string>&#65;&#x42;</string><key>c</key><true /></dict></plist>";
        let read = Plist::read(text).unwrap();
        assert_eq!((read.get("a"), read.str("b")), (Some(&Plist::Data(vec![0, 1, 2])), Some("AB")));
    }

    #[test]
    fn what_is_hostile_is_refused() {
        let deep = "<array>".repeat(100_000);
        let many = format!("<plist><array>{}</array></plist>", "<true/>".repeat(MOST + 1));
        for text in [
            "",
            "bplist00",
            "<plist>",
            "<plist><dict></plist>",
            "<plist><dict><key>a</key></dict></plist>",
            "<plist><dict><string>a</string></dict></plist>",
            "<plist><dict><key>a</key><true/><key>a</key><false/></dict></plist>",
            "<plist><string>&xxe;</string></plist>",
            "<!DOCTYPE plist [<!ENTITY a \"b\">]><plist><string>&a;</string></plist>",
            "<plist><string>a<b/></string></plist>",
            "<plist><true/></plist><plist>",
            "<plist><integer>x</integer></plist>",
            "<plist><data>***</data></plist>",
            &format!("<plist>{deep}"),
            &many,
        ] {
            assert!(Plist::read(text).is_err(), "{}", text.get(..60).unwrap_or(text));
        }
    }

    /// A document with any byte changed or cut off anywhere is read or refused, and does not end the program.
    #[test]
    fn damaged_documents_end_nothing() {
        let good = sample().document();
        for at in 0..good.len() {
            let _ = good.get(..at).map(Plist::read);
            for byte in [b'<', b'>', b'/', b'&', b'a', 0] {
                let mut bad = good.clone().into_bytes();
                bad[at] = byte;
                let _ = str::from_utf8(&bad).map(Plist::read);
            }
        }
    }
}
