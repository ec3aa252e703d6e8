package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// ErrDamaged: a message differs from the one that was stored, or cannot be read any more. Its
// content must not be trusted.
var ErrDamaged = errors.New("damaged")

// The seal of a message. The body has its own sum, which the header sum covers, so that a reader
// that has left the bodies out can still check the headers. A message has both or none: one
// alone is damage.
const (
	HeaderSum     = "Millrace-Sum"      // of subject, headers and HeaderBodySum; 16 hexadecimal digits
	HeaderBodySum = "Millrace-Body-Sum" // of the body; likewise
)

// headerSize is set by the server when it leaves the body out.
const headerSize = "Nats-Msg-Size"

// Seal adds the sums to a message. A publisher seals what it stores; a sealed message is
// returned unchanged. Seal does not modify the headers of m.
func Seal(m Message) Message {
	if m.Get(HeaderSum) != "" {
		return m
	}
	header := make(map[string][]string, len(m.Header)+2)
	maps.Copy(header, m.Header)
	header[HeaderBodySum] = []string{hex(xxhash.Sum64(m.Data))}
	m.Header = header
	header[HeaderSum] = []string{hex(m.sum())}
	return m
}

// Sealed reports whether a message has sums. Messages of versions before sums have none.
func (m Message) Sealed() bool { return m.Get(HeaderSum) != "" || m.Get(HeaderBodySum) != "" }

// Verify checks the sums of a message; it accepts a message without sums, because an older
// version may have stored it. The errors are [ErrDamaged].
func Verify(m Message) error {
	if !m.Sealed() {
		if len(m.Header) == 0 && m.Sequence > 0 {
			return m.damaged("it has no headers") // no version has stored a message without headers
		}
		return nil
	}
	if !isHex(m.Get(HeaderSum), m.sum()) {
		return m.damaged("its headers do not have the sum that they had")
	}
	if len(m.Data) == 0 && m.Get(headerSize) != "" {
		return nil // the reader asked for headers only
	}
	if !isHex(m.Get(HeaderBodySum), xxhash.Sum64(m.Data)) {
		return m.damaged("its body does not have the sum that it had")
	}
	return nil
}

func (m Message) damaged(how string) error {
	return fmt.Errorf("message %d of %s on %q is %w: %s", m.Sequence, m.Stream, m.Subject, ErrDamaged, how)
}

// sum does not depend on the order of the headers. It leaves out the headers that the bus adds
// and removes (Nats-...), and headers without a value.
func (m Message) sum() uint64 {
	var room [512]byte // reused for each part, because sum runs for every message that is read
	var all uint64
	for key, values := range m.Header {
		if key == HeaderSum || strings.HasPrefix(key, "Nats-") || len(values) == 0 || len(values) == 1 && values[0] == "" {
			continue
		}
		part := append(room[:0], key...)
		for _, v := range values {
			part = append(append(part, 0), onWire(v)...)
		}
		all += xxhash.Sum64(part)
	}
	part := append(append(room[:0], lasting(m.Subject)...), 0)
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(part, all))
}

// onWire is a header's value as the receiver gets it: on one line, and without space around it.
func onWire(value string) string {
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	for len(value) > 0 && space(value[0]) {
		value = value[1:]
	}
	for len(value) > 0 && space(value[len(value)-1]) {
		value = value[:len(value)-1]
	}
	return value
}

func space(c byte) bool { return c == ' ' || c == '\t' }

// lasting undoes the bus's change of a subject: a wake is scheduled on one subject and fires on
// another.
func lasting(subject string) string {
	if rest, set := strings.CutPrefix(subject, "sched."); set {
		return "wake." + rest
	}
	return subject
}

func hex(n uint64) string {
	text := digits(n)
	return string(text[:])
}

// isHex reports whether a text is [hex] of n.
func isHex(text string, n uint64) bool {
	want := digits(n)
	return text == string(want[:])
}

func digits(n uint64) (text [16]byte) {
	const digits = "0123456789abcdef"
	for i := range text {
		text[15-i] = digits[n>>(4*i)&15]
	}
	return text
}

func parseHex(text string) (uint64, error) { return strconv.ParseUint(text, 16, 64) }
