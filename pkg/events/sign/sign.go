package sign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// The headers of a signature.
const (
	HeaderSignature = "Millrace-Signature" // base64
	HeaderKey       = "Millrace-Signed-By" // the key's ID
	HeaderAt        = "Millrace-Signed-At" // RFC 3339 with nanoseconds
)

// The headers of a place, which the server checks when it stores the message.
const (
	headerExpect = "Nats-Expected-Last-Subject-Sequence"
	headerID     = "Nats-Msg-Id"
)

// purpose keeps a signature for one kind of message from counting for another. It includes the
// version of the signed format.
type purpose string

const (
	turn    purpose = "millrace-turn-v1"
	outcome purpose = "millrace-outcome-v1"
)

// place is the header with the intended place of a message.
func (p purpose) place() string {
	if p == turn {
		return headerExpect
	}
	return headerID
}

const (
	// TurnWithin is the largest difference between the times at which a turn is signed and
	// stored, unless the writer sets another.
	TurnWithin = 2 * time.Minute
	// OutcomeWithin is the same for an outcome. The de-duplication window of the bus is twice as
	// long.
	OutcomeWithin = time.Minute
)

// The errors. Each message that does not count gives one of them.
var (
	// ErrUnsigned: the message has no signature.
	ErrUnsigned = errors.New("it is not signed")
	// ErrUnproven: the message has a signature, but it does not count.
	ErrUnproven = errors.New("its signature does not count")
	// ErrRevoked: likewise, because the key was revoked before the message was stored.
	ErrRevoked = fmt.Errorf("%w: its key was revoked before", ErrUnproven)
)

// Signed reports whether a message has a signature, valid or not.
func Signed(m events.Message) bool { return len(m.Header[HeaderSignature]) > 0 }

// By is the ID of the key with which a message claims to be signed; "" if it is not signed. It
// can be trusted as far as the signature.
func By(m events.Message) string { return m.Get(HeaderKey) }

// set signs a message for a place. It changes the headers of m.
func set(m events.Message, p purpose, place string, key identity, now time.Time) {
	at := now.UTC().Format(time.RFC3339Nano)
	signature := verified.sign(key.private, key.public, statement(p, m, place, at))
	m.Header[HeaderSignature] = []string{base64.StdEncoding.EncodeToString(signature)}
	m.Header[HeaderKey] = []string{key.id}
	m.Header[HeaderAt] = []string{at}
}

// statement is the signed text.
func statement(p purpose, m events.Message, place, at string) []byte {
	body := sha256.Sum256(m.Data)
	parts := []string{string(p), m.Subject, place, at, string(body[:])}
	size := 0
	for _, part := range parts {
		size += 8 + len(part)
	}
	out := make([]byte, 0, size)
	for _, part := range parts {
		out = binary.BigEndian.AppendUint64(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

// claim is the content of a message's signature headers.
type claim struct {
	key       string
	signature []byte
	said      []byte // the statement
	at        time.Time
}

// read parses the signature headers of a message.
//
// Errors: [ErrUnsigned], [ErrUnproven].
func read(p purpose, m events.Message) (c claim, err error) {
	if !Signed(m) {
		return c, ErrUnsigned
	}
	one := func(header string) (value string) {
		switch values := m.Header[header]; {
		case err != nil:
		case len(values) != 1:
			err = unproven("header %s is there %d times, not once", header, len(values))
		default:
			value = values[0]
		}
		return value
	}
	signature, place, at := one(HeaderSignature), one(p.place()), one(HeaderAt)
	c.key = one(HeaderKey)
	if err != nil {
		return c, err
	}
	if p == turn {
		if n, bad := strconv.ParseUint(place, 10, 64); bad != nil || strconv.FormatUint(n, 10) != place {
			return c, unproven("header %s is no sequence", headerExpect)
		}
	}
	if header := copied(p, m); header != "" {
		return c, unproven("it has the header %s, with which it may have come to lie where it was not meant to", header)
	}
	if c.at, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return c, unproven("header %s is no time", HeaderAt)
	}
	if c.signature, err = base64.StdEncoding.Strict().DecodeString(signature); err != nil || len(c.signature) != ed25519.SignatureSize {
		return c, unproven("header %s holds no Ed25519 signature", HeaderSignature)
	}
	c.said = statement(p, m, place, at)
	return c, nil
}

// copied names a server header that no message of ours has, and that may have moved the message.
func copied(p purpose, m events.Message) string {
	for header := range m.Header {
		if header == p.place() {
			continue
		}
		for _, prefix := range []string{
			"Nats-Expected-", "Nats-Batch-", "Nats-Schedule", "Nats-Stream-Source", "Nats-Rollup", "Nats-Incr", "Nats-Counter-Sources",
		} {
			if strings.HasPrefix(header, prefix) {
				return header
			}
		}
	}
	return ""
}

// stands reports whether the place of a stored message is possible: a turn must come after the one
// that it follows.
func (p purpose) stands(m events.Message) error {
	if p != turn || m.Sequence == 0 {
		return nil
	}
	if before, _ := strconv.ParseUint(m.Get(headerExpect), 10, 64); before >= m.Sequence {
		return unproven("it was to follow turn %d and is number %d", before, m.Sequence)
	}
	return nil
}

// together reports whether a message was stored at about the time at which it was signed.
func (c claim) together(m events.Message, within time.Duration) error {
	if m.Time.Sub(c.at).Abs() <= within {
		return nil
	}
	return unproven("it was signed %v, and stored %v: no more than %v may be between, by the clocks of who signed and of the bus",
		c.at.UTC().Format(time.RFC3339), m.Time.UTC().Format(time.RFC3339), within)
}

func unproven(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnproven}, args...)...)
}
