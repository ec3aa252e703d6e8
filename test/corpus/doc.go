// Package corpus holds records of earlier runs. Its tests decide every turn in them again:
// rebuilt code decides as before, byte for byte, and reads the old records.
//
// The records in testdata are small: a world of each shape of the simulation, and runs of the
// services on a real control plane. `make corpus-record` recreates them, which is right only
// when a change is meant to change decisions; the commit then lists the turns that changed.
// testdata/corpus.json describes each record.
//
// The programs of the larger records (the end-to-end tests, the torture, the benchmark) export
// them with --export, and `make corpus DIR=...` decides them again.
package corpus
