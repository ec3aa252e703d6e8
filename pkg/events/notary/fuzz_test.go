package notary_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/millrace/millrace/pkg/events/notary"
)

// FuzzPage: only bytes that the notary signed are accepted as a page, and it can read every page
// that it signs.
func FuzzPage(f *testing.F) {
	signer, verifier := key(f, 1)
	known := note.VerifierList(verifier)
	page := notary.Page{
		Checkpoint: notary.Checkpoint{Stream: "EV_pods", Created: time.Unix(0, 5), Number: 1, Size: 1, Root: tlog.RecordHash([]byte("a")), First: 1, Last: 1, Time: time.Unix(7, 0)},
		Entries:    []notary.Entry{{Sequence: 1, Leaf: tlog.RecordHash([]byte("a")), Time: 6}},
	}
	honest, err := page.Sign(signer)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := notary.Open(honest, known); err != nil {
		f.Fatal(err)
	}
	f.Add(honest)
	f.Add([]byte("-1\n"))
	f.Add([]byte("millrace checkpoint EV_pods 5\n1\n" + tlog.RecordHash([]byte("a")).String() + "\nnumber 1 messages 1 1\ntime 1970-01-01T00:00:07Z\nkeeps 0 0\npage {sum}\n\x00\x01\x00\x00\x01\x01\x0c\x00" + string(make([]byte, tlog.HashSize))))
	f.Add([]byte("millrace checkpoint EV_pods 5\n9223372036854775807\n" + tlog.RecordHash(nil).String() + "\nnumber 1 messages 1 1\ntime 1970-01-01T00:00:07Z\nkeeps 0 0\npage {sum}\n\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00"))
	f.Add([]byte(strings.Replace(string(honest), "\n", "\n\n", 1)))
	f.Fuzz(func(t *testing.T, stored []byte) {
		if p, err := notary.Open(stored, known); err == nil && !bytes.Equal(stored, honest) {
			t.Errorf("%q is taken for %+v", stored, p)
		}
		// Content behind a valid signature, as from a compromised notary.
		text, packed, _ := bytes.Cut(stored, []byte("\x00"))
		if _, err := notary.Open(signed(t, signer, text, packed), known); err != nil && err.Error() == "" {
			t.Error("a refusal without a reason")
		}
	})
}

// FuzzKeys: Read accepts only public keys, and an error never repeats a private key.
func FuzzKeys(f *testing.F) {
	private, public, err := notary.Generate("notary.test")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(public)
	f.Add("# a comment\n\n" + public + "\n" + public)
	f.Add(private)
	f.Fuzz(func(t *testing.T, text string) {
		var keys notary.Keys
		err := keys.Read(text)
		if err == nil && keys.Empty() || err != nil && strings.Contains(err.Error(), "PRIVATE+KEY+") {
			t.Errorf("no key: %t, %v", keys.Empty(), err)
		}
		signer, verifier, err := notary.Signer(text)
		if err != nil {
			if rest := strings.TrimSpace(text); len(rest) > 20 && strings.Contains(err.Error(), rest) {
				t.Errorf("a private key is repeated: %v", err)
			}
			return
		}
		if note, err := signer.Sign([]byte("x")); err != nil || !verifier.Verify([]byte("x"), note) {
			t.Errorf("the public key is not that of the private one: %v", err)
		}
	})
}

// signed is a page of any text, in which "{sum}" is replaced by the sum of the rest.
func signed(t *testing.T, by note.Signer, text, packed []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(packed)
	body := strings.ReplaceAll(string(text), "{sum}", base64.StdEncoding.EncodeToString(sum[:]))
	message, err := note.Sign(&note.Note{Text: strings.TrimRight(body, "\n") + "\n"}, by)
	if err != nil {
		return nil // it is no text
	}
	return append(append(strconv.AppendInt(nil, int64(len(message)), 10), '\n'), append(message, packed...)...)
}
