package doctor

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/klog/v2"
)

// State is the result of a check.
type State string

// The states.
const (
	OK         State = "ok"
	Warning    State = "warning"
	Failed     State = "failed"
	NotChecked State = "not checked"
)

// The names of the checks.
const (
	CheckKubeconfig  = "kubeconfig"
	CheckAPIServer   = "api-server"
	CheckTLS         = "api-server-tls"
	CheckIdentity    = "identity"
	CheckVersion     = "version"
	CheckManager     = "kube-controller-manager"
	CheckBus         = "bus"
	CheckBusTLS      = "bus-tls"
	CheckBusVersion  = "bus-version"
	CheckJetStream   = "jetstream"
	CheckBusServers  = "bus-servers"
	CheckBusAccount  = "bus-account"
	CheckBusStore    = "bus-store"
	CheckBusPayload  = "bus-payload"
	CheckBusAudit    = "bus-audit-grade"
	CheckClockServer = "clock-api-server"
	CheckClockBus    = "clock-bus"
	CheckDisk        = "disk"
	CheckSettings    = "settings"
	// rightsOf is the prefix of the names of the checks of rights, before the part.
	rightsOf = "rights-"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	// Found is the observation, and Do what to do about it; empty: nothing.
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// String is what was found and what to do, as one text.
func (f Finding) String() string {
	if f.Do == "" {
		return f.Found
	}
	return f.Found + "; " + f.Do
}

// found is a finding with a text formatted by [fmt.Sprintf], on one line.
func found(check string, state State, text string, args ...any) Finding {
	return Finding{Check: check, State: state, Found: strings.Join(strings.Fields(fmt.Sprintf(text, args...)), " ")}
}

// so adds what to do.
func (f Finding) so(text string, args ...any) Finding {
	f.Do = fmt.Sprintf(text, args...)
	return f
}

// Unchecked are findings for checks that could not be made, with the reason.
func Unchecked(why string, checks ...string) (all []Finding) {
	for _, check := range checks {
		all = append(all, Finding{Check: check, State: NotChecked, Found: why})
	}
	return all
}

// ErrFailed: a check has failed, so that Millrace cannot run.
var ErrFailed = errors.New("see what to do beside each")

// Verdict is nil if no check failed.
func Verdict(all []Finding) error {
	var failed []string
	for _, f := range all {
		if f.State == Failed {
			failed = append(failed, f.Check)
		}
	}
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 of %d checks failed (%s): %w", len(all), failed[0], ErrFailed)
	}
	return fmt.Errorf("%d of %d checks failed (%s): %w", len(failed), len(all), strings.Join(failed, ", "), ErrFailed)
}

// Log logs failures and warnings.
func Log(log klog.Logger, all []Finding) {
	for _, f := range all {
		switch f.State {
		case Failed:
			log.Error(nil, "A check at the start failed: "+f.Found, "check", f.Check, "do", f.Do)
		case Warning:
			log.Info("A check at the start warns: "+f.Found, "check", f.Check, "do", f.Do)
		}
	}
}

// some are the first entries of a list, with the number of further ones.
func some(list []string) string {
	const most = 6
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
