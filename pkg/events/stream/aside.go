package stream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/pkg/events/subject"
)

// damagedError names the streams that the server found on disk and cannot read.
type damagedError struct {
	streams []string
	why     string
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("damaged streams %s (%s): restore them from a backup, or remove their folders to begin them anew",
		strings.Join(e.streams, ", "), e.why)
}

// asideFolder is where streams are kept that cannot be read, beside the store.
const asideFolder = "damaged"

// setAside moves the folders of damaged logs and states out of the way, where
// whoever wants to can still look into them, and tells whether a start without
// them makes sense. What they held the API server still has: the watcher lists
// everything and records a gap. Turns and outcomes nobody else has, so that an
// operator must decide about those.
func (s *Server) setAside(err error) (worthwhile bool, _ error) {
	var damaged *damagedError
	if !errors.As(err, &damaged) {
		return false, nil
	}
	for _, name := range damaged.streams {
		if _, ours := subject.KindOfStream(name); !ours {
			return false, nil
		}
	}
	aside := filepath.Join(s.options.Dir, asideFolder)
	if err := os.MkdirAll(aside, 0o750); err != nil {
		return false, fmt.Errorf("set damaged streams aside: %w", err)
	}
	for _, name := range damaged.streams {
		from := filepath.Join(s.options.Dir, "jetstream", server.DEFAULT_GLOBAL_ACCOUNT, "streams", name)
		to := filepath.Join(aside, name+"-"+time.Now().UTC().Format("20060102T150405.000Z"))
		if err := os.Rename(from, to); err != nil {
			return false, fmt.Errorf("set damaged streams aside: %w", err)
		}
		s.options.Log.Error("a damaged stream has been set aside and begins anew", "stream", name, "folder", to, "because", damaged.why)
	}
	return true, nil
}
