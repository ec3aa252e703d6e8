// Package metadata compares the controllers that act on objects of any kind with upstream's: the garbage collector,
// the namespace controller (in its tests) and the storage version migrator.
package metadata
