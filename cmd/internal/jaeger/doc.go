// Package jaeger reads traces from Jaeger, through version 3 of its query API, which
// distinguishes parents and links, and draws them as trees.
package jaeger
