// Package settings has the settings of Millrace's streams and consumers, as JetStream has them: what each stream must
// be like ([Policy]), in what an existing one differs ([Differences]), and what a consumer is like ([Consumer]). It
// has no connection; package stream creates and changes streams and consumers.
package settings
