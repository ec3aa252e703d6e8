package main

import (
	"crypto/sha256"
	"fmt"

	"sigs.k8s.io/yaml"
)

// downloads is where the archives of a release are.
const downloads = "https://github.com/millrace/millrace/releases/download"

// krew is the manifest with which krew, the manager of kubectl's plug-ins, installs a release. archives are its
// archives.
func krew(version string, archives []archive) ([]byte, error) {
	var platforms []map[string]any
	for _, a := range archives {
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": a.system, "arch": a.architecture}},
			"uri":      fmt.Sprintf("%s/%s/%s.tar.gz", downloads, version, a.name), "sha256": fmt.Sprintf("%x", sha256.Sum256(a.content)),
			"bin": "millrace",
			"files": []map[string]string{
				{"from": a.name + "/millrace", "to": "."}, {"from": a.name + "/LICENSE", "to": "."}, {"from": a.name + "/THIRD_PARTY_LICENSES", "to": "."},
			},
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]string{"name": "millrace"},
		"spec": map[string]any{
			"version": version, "homepage": "https://github.com/millrace/millrace", "platforms": platforms,
			"shortDescription": "Ask Kubernetes' controllers what they did and why",
			"description": "Reads the record of Millrace, Kubernetes' controllers as event-sourced services: the history of any\n" +
				"object, the causes of a change across controllers, why something does not happen, and the writes\n" +
				"that wait for an approval.\n",
		},
	})
}
