crun ./hello -- x
