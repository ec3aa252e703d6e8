package writer

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
)

// TestTheFirstHeartbeatIsProven: a writer sends heartbeats before it has read the clock of the
// bus, and writers that know the clock believe them.
func TestTheFirstHeartbeatIsProven(t *testing.T) {
	keys, err := sign.Provide(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := sign.SignerFile(keys.Outcomes.Private, nil)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	starting := &Service{config: Config{Sign: signer}}
	text := starting.signHeartbeat((report.Heartbeat{Writer: "starting", Number: 1}).Encode())
	there := &Service{config: Config{Outcomes: trust}}
	there.time.busReading, there.time.localReading = time.Now(), time.Now()
	if err := there.heartbeatProven(text); err != nil {
		t.Errorf("the heartbeat of a starting writer is refused: %v", err)
	}
}
