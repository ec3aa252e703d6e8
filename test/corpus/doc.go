// Package corpus holds records of earlier runs, and the tests decide every turn in them
// again: code that is rebuilt decides what it decided before, byte for byte, and reads
// what was stored before.
//
// The records in testdata are small: a world of each shape of the simulation, and runs
// of the services on a real control plane. `make corpus-record` makes them anew, which
// is right only where a change of decisions is wanted; the commit then says which turns
// changed. testdata/corpus.json says of each what it is of.
//
// Larger records (the end-to-end tests, the torture, the benchmark) are exported by their
// programs with --export, and decided again with `make corpus DIR=...`.
package corpus
