// Package apiservertest is an API server for the tests of all modules. It stores objects without a
// schema under their paths, with one counter of versions and a history. It serves discovery, get,
// list and watch (pages, streamed lists, bookmarks, versions of the past, 410 after a compaction)
// and writes with preconditions. A test injects faults, holds requests back, and reads which
// requests were received. There are no defaults, no admission, no finalizers and no controllers:
// package test/sim/apiserver has those.
package apiservertest
