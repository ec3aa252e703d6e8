// Package access compares the controllers of certificates, trust bundles, tokens, service accounts and
// aggregated roles with upstream's.
package access
