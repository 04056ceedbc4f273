// Package web is the head's page: plain HTML, CSS and JavaScript modules, without a
// library and without a build step, that show a cluster and let users change what is
// theirs. It asks the head's documented interface (wire/api) and nothing else.
//
// Package head/daemon serves these files, and says who may look. The package knows no
// Go package of Muster. What users named or wrote becomes text in the page and never
// markup: js/dom.js has the only functions that make elements, and the head's content
// policy has the browser refuse anything else.
package web

import "embed"

// Files are the page's, with index.html at the top.
//
//go:embed index.html style.css icon.svg js/*.js
var Files embed.FS
