// Package publish stores messages in streams ([Publisher]): single ones, behind an expected sequence of their subject
// or once per id, wakes at their time, and the logs, whose one publisher sends messages without waiting, each behind
// the expected sequence of the log (package ingest). What was stored is handed over to the readers of this process
// (package handover).
//
// It needs an open connection ([Connection]), which package stream keeps.
package publish
