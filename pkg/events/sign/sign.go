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

// purpose keeps a signature for one kind of message from counting for another. It names
// the version of what is signed.
type purpose string

const (
	turn    purpose = "millrace-turn-v1"
	outcome purpose = "millrace-outcome-v1"
)

// place is the header that says where a message of the purpose was meant to lie.
func (p purpose) place() string {
	if p == turn {
		return headerExpect
	}
	return headerID
}

const (
	// TurnWithin is how far apart the times may be, unless the writer says otherwise, at
	// which a turn is signed and stored.
	TurnWithin = 2 * time.Minute
	// OutcomeWithin is the same of an outcome. The bus stores an id once within twice that
	// time.
	OutcomeWithin = time.Minute
)

// The errors. Each message that does not count is one of them.
var (
	// ErrUnsigned: it bears no signature.
	ErrUnsigned = errors.New("it is not signed")
	// ErrUnproven: it bears one that does not make it count.
	ErrUnproven = errors.New("its signature does not count")
	// ErrRevoked: likewise, as the key was revoked before it was stored.
	ErrRevoked = fmt.Errorf("%w: its key was revoked before", ErrUnproven)
)

// Signed tells whether a message bears a signature, whatever it is worth.
func Signed(m events.Message) bool { return len(m.Header[HeaderSignature]) > 0 }

// By is the ID of the key that a message says it was signed with; "" where it is not
// signed. It is as good as the signature.
func By(m events.Message) string { return m.Get(HeaderKey) }

// set signs a message for a place. The headers of m are changed.
func set(m events.Message, p purpose, place string, key identity, now time.Time) {
	at := now.UTC().Format(time.RFC3339Nano)
	signature := verified.sign(key.private, key.public, statement(p, m, place, at))
	m.Header[HeaderSignature] = []string{base64.StdEncoding.EncodeToString(signature)}
	m.Header[HeaderKey] = []string{key.id}
	m.Header[HeaderAt] = []string{at}
}

// statement is what is signed.
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

// claim is what a message says of its signature.
type claim struct {
	key       string
	signature []byte
	said      []byte // the statement
	at        time.Time
}

// read gives what a message claims.
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

// copied names a header of the server that no honest message of ours has.
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

// stands tells whether the place of a stored message can be its own: a turn lies behind
// the one that it follows.
func (p purpose) stands(m events.Message) error {
	if p != turn || m.Sequence == 0 {
		return nil
	}
	if before, _ := strconv.ParseUint(m.Get(headerExpect), 10, 64); before >= m.Sequence {
		return unproven("it was to follow turn %d and is number %d", before, m.Sequence)
	}
	return nil
}

// together tells whether a message was stored at about the time when it was signed.
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
