package subject

import "github.com/millrace/millrace/pkg/events"

// Shadows have subjects and streams of their own, which no writer reads:
//
//	shadow.<controller>.<lane>.<slot>.<kind>.<ns>.<name>    turns that no writer carries out
//	shadow.<controller>.finding.<slot>.<kind>.<ns>.<name>   what KCM did about them
const finding = "finding"

// ShadowStream is the stream of a shadow's turns and findings.
func ShadowStream(controller string) string { return "SHADOW_" + controller }

// Shadow is every subject of a controller's shadow.
func Shadow(controller string) string { return "shadow." + controller + ".>" }

// ShadowTurn is the subject of a shadow's turns of a key in a lane; no writer carries them out.
func ShadowTurn(controller string, lane events.Lane, key events.Key) string {
	return join("shadow", controller, string(lane), keyTokens(key))
}

// Finding is the subject of the findings about a key.
func Finding(controller string, key events.Key) string {
	return join("shadow", controller, finding, keyTokens(key))
}

// Findings is every subject of a controller's findings.
func Findings(controller string) string { return join("shadow", controller, finding, ">") }
