package audit

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/readertest"
)

// TestVerifyTellsHowToGetANotary: verify explains it if nothing is signed.
func TestVerifyTellsHowToGetANotary(t *testing.T) {
	said, err := readertest.NewWorld(t, func() []*cobra.Command { return Commands("test") }).Millrace("verify")
	if err != nil || !strings.Contains(said, "millrace notary keys NAME notary.key") || !strings.Contains(said, "millrace run --notary-key=notary.key") {
		t.Errorf("%v\n%s", err, said)
	}
}
