// Package redact takes values out of objects before anything is told of them.
//
// A [Rule] names a kind and a path in it. What the path leads to is replaced:
// text by [Marker], anything else by nothing. The marker is always the same. A hash in
// its place, also one with a key, would tell which hidden values are equal, and which
// have changed; that something has changed is told by the object's version alone.
//
// Copies go too: the annotations are removed in which tools keep the whole object as it
// was applied. A [Policy] names the kinds that keep them.
package redact
