package doctor

import (
	"fmt"
	"strings"
)

// Settings are the results of validating the flags, and the files that they name.
type Settings struct {
	// Wrong are the errors, each with what to do.
	Wrong []string
	// Acting is how many controllers act, and Looking how many are in shadow.
	Acting, Looking int
	// Off are the controllers that are off because a flag is not set, with the flag.
	Off []string
}

// Finding checks the settings.
func (s Settings) Finding() Finding {
	if len(s.Wrong) > 0 {
		return found(CheckSettings, Failed, "%s", strings.Join(s.Wrong, ". Also, "))
	}
	text := fmt.Sprintf("%d controllers act, and %d only look on", s.Acting, s.Looking)
	if len(s.Off) > 0 {
		text += "; off for want of a flag: " + some(s.Off)
	}
	return found(CheckSettings, OK, "%s", text)
}
