package notary

import (
	"encoding/binary"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events"
)

// Leaf is the hash of a message in the tree of its stream. It covers the whole message:
// different messages have different hash inputs.
func Leaf(m events.Message) tlog.Hash {
	text := make([]byte, 0, len(m.Data)+1024)
	part := func(s string) {
		text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
	}
	part(m.Stream)
	part(m.Subject)
	text = binary.AppendUvarint(text, m.Sequence)
	text = binary.AppendVarint(text, m.Time.UnixNano())
	keys := make([]string, 0, len(m.Header))
	for key, values := range m.Header {
		if len(values) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	text = binary.AppendUvarint(text, uint64(len(keys)))
	for _, key := range keys {
		part(key)
		text = binary.AppendUvarint(text, uint64(len(m.Header[key])))
		for _, value := range m.Header[key] {
			part(value)
		}
	}
	return tlog.RecordHash(append(text, m.Data...))
}

// headerTTL is the header that makes the bus expire a message before its stream's retention.
const headerTTL = "Nats-TTL"

// expires is when a message may expire before the ones around it, in seconds since 1970; 0:
// never.
func expires(m events.Message) int64 {
	life, err := time.ParseDuration(m.Get(headerTTL))
	if err != nil || life <= 0 {
		return 0
	}
	return m.Time.Add(life).Unix()
}
