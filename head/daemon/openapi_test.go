package daemon

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/wire/api"
	"muster/wire/status"
)

var update = flag.Bool("update", false, "write the OpenAPI document anew")

// The OpenAPI document is generated from the table of routes and from the documents' types and
// comments, so that it cannot differ from either.
func TestOpenAPI(t *testing.T) {
	want := openAPI(t)
	const path = "../../wire/api/openapi.json"
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("wire/api/openapi.json is not what is served: run go test ./head/daemon -run TestOpenAPI -update, and read the difference")
	}
	var served json.RawMessage
	start(t, nil).user("").must("GET", "/v1/openapi.json", nil, &served)
	if !*update && !bytes.Equal(bytes.TrimSpace(served), bytes.TrimSpace(have)) {
		t.Error("another document is served")
	}
}

// The package comment of wire/api names every path that is served.
func TestRoutesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../wire/api/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes() {
		path := strings.NewReplacer("{id}", "ID", "{name}", "NAME", "{stream}", "ID", "{address}", "ADDRESS").Replace(r.path)
		for _, actions := range []string{"/v1/jobs/ID/", "/v1/nodes/NAME/"} {
			if action, ok := strings.CutPrefix(path, actions); ok && r.method == "POST" && action != "exec" {
				if !regexp.MustCompile(regexp.QuoteMeta(actions+"ACTION") + `.*\b` + action + `\b`).Match(text) {
					t.Errorf("wire/api does not name %s %s", r.method, r.path)
				}
				path = actions + "ACTION"
			}
		}
		if !bytes.Contains(text, []byte(path)) {
			t.Errorf("wire/api does not name %s", path)
		}
		for _, p := range r.query {
			if !bytes.Contains(text, []byte("?"+p.name+"=")) && !bytes.Contains(text, []byte("&"+p.name+"=")) {
				t.Errorf("wire/api does not name ?%s= of %s", p.name, path)
			}
		}
	}
}

type object = map[string]any

func openAPI(t *testing.T) []byte {
	g := &generator{schemas: object{}, comments: comments(t)}
	paths := map[string]object{}
	for _, r := range routes() {
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = g.operation(&r)
	}
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "The head of a Muster cluster", "version": "1",
			"description": "Times are in seconds, instants in seconds since 1970, sizes in bytes. Whatever a client sends beyond what is described is refused. Users are known by their certificate, or at the Unix socket by the kernel.",
		},
		"paths":      paths,
		"components": object{"schemas": g.schemas, "securitySchemes": object{"certificate": object{"type": "mutualTLS"}}},
		"security":   []object{{"certificate": []string{}}},
	}
	text, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// taken are the documents that clients send; those that clients receive may get more fields some
// day.
var taken = []reflect.Type{reflect.TypeFor[api.Submission](), reflect.TypeFor[api.Priority](), reflect.TypeFor[api.Limit](), reflect.TypeFor[api.Drain]()}

type generator struct {
	schemas  object
	comments map[string]string
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

func (g *generator) operation(r *route) object {
	parameters := []object{}
	for _, name := range inPath.FindAllStringSubmatch(r.path, -1) {
		parameters = append(parameters, object{"name": name[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, p := range r.query {
		schema := object{"type": p.kind}
		if p.kind == "list" {
			schema = object{"type": "array", "items": object{"type": "string"}}
		}
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.help, "schema": schema})
	}
	refused := object{"description": "Why not.", "content": g.content("application/json", api.Error{})}
	operation := object{"summary": r.summary, "responses": object{"default": refused}}
	answers := operation["responses"].(object)
	switch {
	case r.upgrade != "":
		answers["101"] = object{"description": "The connection is upgraded to " + r.upgrade + "."}
	case r.path == "/v1/events":
		answers["200"] = object{"description": "The data of each event is a Change; an event called cut has an Error, and is the last.", "content": g.content("text/event-stream", r.answer)}
	case r.answer == nil && r.path == "/v1/openapi.json":
		answers["200"] = object{"description": "This document."}
	case r.answer == nil:
		answers["200"] = object{"description": "Bytes.", "content": object{"application/octet-stream": object{}}}
	default:
		answers["200"] = object{"description": "Done.", "content": g.content("application/json", either(r.answer, r.method == "GET", r.also)...)}
	}
	if r.path == "/v1/jobs" && r.method == "POST" {
		answers["200"] = object{"description": "Done; of a list, each with a job or why not.", "content": g.content("application/json", api.Submitted{}, []api.Submitted{})}
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	if r.body != nil {
		operation["requestBody"] = object{"required": true, "content": g.content("application/json", either(r.body, r.method != "GET", r.also)...)}
	}
	return operation
}

func either(one any, alsoToo bool, also any) []any {
	if also != nil && alsoToo {
		return []any{one, also}
	}
	return []any{one}
}

func (g *generator) content(kind string, values ...any) object {
	schemas := make([]object, len(values))
	for i, v := range values {
		schemas[i] = g.schema(reflect.TypeOf(v))
	}
	if len(schemas) == 1 {
		return object{kind: object{"schema": schemas[0]}}
	}
	return object{kind: object{"schema": object{"oneOf": schemas}}}
}

func (g *generator) schema(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		return g.schema(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": g.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.schema(t.Elem())}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		if t == reflect.TypeFor[api.State]() {
			return object{"type": "string", "enum": allStates}
		}
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Struct:
		name := schemaName(t)
		if _, known := g.schemas[name]; !known {
			g.schemas[name] = object{} // it may contain itself
			g.schemas[name] = g.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{"type": "integer"}
}

// statusPrefix is put before the names of wire/status: wire/api has a Node too.
const statusPrefix = "Status"

func schemaName(t reflect.Type) string {
	if t.PkgPath() == reflect.TypeFor[status.Node]().PkgPath() {
		return statusPrefix + t.Name()
	}
	return t.Name()
}

func (g *generator) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := g.schema(field.Type)
		if text := g.comments[schemaName(t)+"."+field.Name]; text != "" {
			property["description"] = text
		}
		properties[name] = property
		if options != "omitempty" {
			required = append(required, name)
		}
	}
	s := object{"type": "object", "properties": properties}
	if slices.Contains(taken, t) {
		s["additionalProperties"] = false
	}
	if len(required) > 0 {
		s["required"] = required
	}
	if text := g.comments[schemaName(t)]; text != "" {
		s["description"] = text
	}
	return s
}

// comments are those of the types and fields of wire/api, and of wire/status.
func comments(t *testing.T) map[string]string {
	all := map[string]string{}
	commentsIn(t, "../../wire/api/types.go", "", all)
	commentsIn(t, "../../wire/status/status.go", statusPrefix, all)
	return all
}

func commentsIn(t *testing.T, path, prefix string, all map[string]string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(groups ...*ast.CommentGroup) string {
		var words []string
		for _, g := range groups {
			words = append(words, strings.Fields(g.Text())...)
		}
		return strings.Join(words, " ")
	}
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			return true
		}
		for _, spec := range decl.Specs {
			typ := spec.(*ast.TypeSpec)
			all[prefix+typ.Name.Name] = plain(decl.Doc)
			fields, ok := typ.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					all[prefix+typ.Name.Name+"."+name.Name] = plain(f.Doc, f.Comment)
				}
			}
		}
		return true
	})
}

// Every document that is sent or received is in the table.
func TestEveryTypeIsUsed(t *testing.T) {
	g := &generator{schemas: object{}}
	for _, r := range routes() {
		g.operation(&r)
	}
	all := map[string]string{}
	commentsIn(t, "../../wire/api/types.go", "", all)
	named := slices.Sorted(maps.Keys(all))
	for _, name := range named {
		if strings.Contains(name, ".") || name == "State" || name == "NodeState" || name == "Exec" {
			continue
		}
		if g.schemas[name] == nil {
			t.Errorf("api.%s is in no route", name)
		}
	}
}
