//! The CA certificates of the image: Mozilla's list, from a package of the crate registry whose version and digest are in
//! Cargo.lock. Files of the build machine would differ from one machine to the next.

/// All certificates in one PEM file.
pub(crate) fn bundle() -> String {
    let certificates = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    let encode = |certificate: &[u8]| {
        let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
        pem::encode_config(&pem::Pem::new("CERTIFICATE", certificate), config)
    };
    certificates.map(|certificate| encode(certificate.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_has_every_certificate() {
        let parsed = pem::parse_many(bundle()).expect("PEM");
        assert_eq!(parsed.len(), webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
        assert!(parsed.len() > 50, "{}", parsed.len());
    }
}
