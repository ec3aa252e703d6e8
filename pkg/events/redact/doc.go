// Package redact removes values from objects before anything about them is published.
//
// A [Rule] names a kind and a path in its objects. It replaces the values at the path: text by
// [Marker], anything else by its zero value. The marker is always the same. A hash in its place,
// even a keyed one, would reveal which hidden values are equal, and which have changed; only the
// object's version shows that something has changed.
//
// Copies are removed, too: the annotations in which tools keep the whole object as it was
// applied. A [Policy] names the kinds that keep these annotations.
package redact
