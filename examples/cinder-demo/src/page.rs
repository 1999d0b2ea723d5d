//! The page.

use crate::rows::Row;

/// The pod that shows the page, and its node.
pub(crate) struct Whereabouts {
    pub(crate) pod: String,
    pub(crate) node: String,
}

/// One line per row, then the pod and the node.
pub(crate) fn text(rows: &[Row], Whereabouts { pod, node }: &Whereabouts) -> String {
    let rows: String = rows.iter().map(|row| format!("{}|{}\n", row.name, row.email)).collect();
    format!("{rows}My pod name: {pod}\nMy node name {node}\n")
}

/// The same for a browser, with a form.
pub(crate) fn html(rows: &[Row], whereabouts: &Whereabouts) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<title>test-cinder</title>\n<pre>{}</pre>\n\
         <form method=\"post\"><input name=\"name\" placeholder=\"name\" required>\n\
         <input name=\"email\" placeholder=\"email\" required> <button>add</button></form>\n</html>\n",
        escaped(&text(rows, whereabouts))
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_report() {
        let rows = [Row { name: "<foo>".to_owned(), email: "foo@example.com".to_owned() }];
        let whereabouts = Whereabouts { pod: "test-cinder-568c454cf-v5qtc".to_owned(), node: "node-3-nude".to_owned() };
        let plain = "<foo>|foo@example.com\nMy pod name: test-cinder-568c454cf-v5qtc\nMy node name node-3-nude\n";
        assert_eq!(text(&rows, &whereabouts), plain);
        assert!(html(&rows, &whereabouts).contains("<pre>&lt;foo&gt;|foo@example.com\nMy pod name"));
    }
}
