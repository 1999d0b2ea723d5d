//! Reads options from oslo.config's file format, as far as the loops need it.

/// The value of an option: the last one in its section, as in oslo.config.
pub(crate) fn option<'a>(config: &'a str, section: &str, key: &str) -> Option<&'a str> {
    settings(config).filter(|(s, k, _)| *s == section && *k == key).last().map(|(_, _, value)| value)
}

/// The stores of an API, `name:type` each, whatever the section.
pub(crate) fn enabled_backends(config: &str) -> Vec<&str> {
    let value = settings(config).filter(|(_, key, _)| *key == "enabled_backends").last().map_or("", |(_, _, v)| v);
    let value = value.split('#').next().unwrap_or_default();
    value.split(',').map(str::trim).filter(|backend| backend.contains(':')).collect()
}

/// Whether one of the stores is Cinder. It is the only one that accesses its host.
pub(crate) fn uses_cinder(config: &str) -> bool {
    enabled_backends(config).iter().any(|backend| backend.ends_with(":cinder"))
}

fn settings(config: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "DEFAULT";
    config.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim();
            return None;
        }
        if line.starts_with(['#', ';']) {
            return None;
        }
        let at = line.find(['=', ':'])?;
        Some((section, line[..at].trim(), line[at + 1..].trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found() {
        let config = "[DEFAULT]\nenabled_backends = a:rbd, b:file # two\n# debug=true\n[database]\nconnection: x\nconnection=y\n";
        assert_eq!(enabled_backends(config), ["a:rbd", "b:file"]);
        assert_eq!(option(config, "database", "connection"), Some("y"));
        assert_eq!(option(config, "DEFAULT", "debug"), None);
        assert_eq!(option(config, "DEFAULT", "connection"), None);
        assert_eq!(enabled_backends(""), Vec::<&str>::new());
    }
}
