//! From a head to what routes are matched against: target, normalised path, Host.

use super::RequestContext;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::uri::{
    PathFacts, Target, TargetForm, hides_dot_segments, normalise_path, parse_target, valid_host,
};
use crate::http::{HeadLimits, Known, RequestHead, Span, Version};
use crate::http1::head::RequestParser;

impl RequestContext {
    /// A context of its own for a whole head; what `read_target` and `check_host` say of it.
    ///
    /// # Errors
    /// What is wrong with the head.
    pub fn of_head(head: &[u8]) -> Result<(RequestContext, PathFacts), ErrorKind> {
        let mut context = RequestContext {
            request: RequestHead { bytes: Buf::from(head), ..RequestHead::default() },
            ..RequestContext::default()
        };
        if !RequestParser::default().parse(&mut context.request, &HeadLimits::default())? {
            return Err(ErrorKind::HeadMalformed);
        }
        let facts = context.read_target()?;
        context.check_host()?;
        Ok((context, facts))
    }

    /// Takes the target apart and normalises its path.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_target(&mut self) -> Result<PathFacts, ErrorKind> {
        let request = &self.request;
        let bytes = request.bytes.filled();
        let span = request.target;
        let Target { form, authority, path, query } =
            parse_target(request.method.of(bytes), span.of(bytes))?;
        let base = bytes.as_ptr() as usize;
        // The parts of an absolute target without a path point to no byte of the head.
        let locate = |part: &[u8]| match (part.as_ptr() as usize).checked_sub(base) {
            Some(start) if start + part.len() <= bytes.len() => {
                Some(Span::new(start, start + part.len()))
            }
            _ => None,
        };
        let facts = normalise_path(path, &mut self.target.normalised)?;
        let normal = if facts.changed { &self.target.normalised } else { path };
        if (facts.encoded_slash || facts.backslash || facts.dot_dot_semicolon)
            && hides_dot_segments(path, normal)
        {
            return Err(ErrorKind::PathRefused);
        }
        let target = &mut self.target;
        target.asterisk = form == TargetForm::Asterisk;
        target.authority = authority.and_then(locate);
        target.query = query.and_then(locate);
        target.changed = facts.changed;
        match locate(path) {
            Some(span) => target.path = span,
            None => {
                target.normalised.clear();
                target.normalised.extend_from_slice(path);
                target.changed = true;
            }
        }
        Ok(facts)
    }

    /// RFC 9112 section 3.2: exactly one valid Host in HTTP/1.1, at most one in HTTP/1.0.
    ///
    /// # Errors
    /// `HostInvalid`
    pub fn check_host(&self) -> Result<(), ErrorKind> {
        let request = &self.request;
        let mut hosts = request.values(Known::Host);
        let (first, second) = (hosts.next(), hosts.next());
        let missing = first.is_none() && request.version != Version::Http10;
        if missing || second.is_some() || first.is_some_and(|host| !valid_host(host)) {
            return Err(ErrorKind::HostInvalid);
        }
        match self.target.authority {
            Some(authority) if !valid_host(request.text(authority)) => Err(ErrorKind::HostInvalid),
            _ => Ok(()),
        }
    }
}
